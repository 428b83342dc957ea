"""A store that a test spoils."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from skyplane_gateway.stores.base import ObjectStore


class Wrapped:
    """A store of which single methods and the trust in its checksums are replaced."""

    def __init__(self, store: ObjectStore, *, trusted: bool = True, **methods: Any) -> None:
        self._store = store
        self._methods = methods
        self.spec = store.spec
        self.capabilities = replace(store.capabilities, trusts_checksum=trusted)
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._store, name)
        method = self._methods.get(name)

        def call(*arguments: Any, **more: Any) -> Any:
            self.calls.append(name)
            if method is None:
                return original(*arguments, **more)
            return method(original, *arguments, **more)

        return call


def flipped(original: Callable[..., Any], key: str, data: Any, **more: Any) -> Any:
    """Stores another byte than it was given, and says what it stored."""
    more["crc32c"] = None
    return original(key, bytes([data[0] ^ 1, *data[1:]]), **more)
