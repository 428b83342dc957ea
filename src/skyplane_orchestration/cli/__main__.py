"""`python -m skyplane_orchestration.cli`."""

from __future__ import annotations

from skyplane_orchestration.cli.main import entry_point

entry_point()
