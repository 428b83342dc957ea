"""Async tests of the lead run in virtual time."""

from __future__ import annotations

from tests.gateway.virtual_time import inline, pytest_pyfunc_call, virtual

__all__ = ["inline", "pytest_pyfunc_call", "virtual"]
