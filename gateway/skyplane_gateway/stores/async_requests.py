"""Requests for small objects over asyncio: a thread for each would cost more than the request.

Each request is sent once. Where it does not succeed, the caller repeats it by the methods of
`ObjectStore`, which retry, follow redirects and explain errors.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from skyplane_gateway.common.errors import StoreError
from skyplane_gateway.common.objects import MIB, Body, ObjectAttributes, ObjectInfo, Precondition
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.checksums import Stated
from skyplane_gateway.stores.response_validation import NoAnswer

#: Larger bodies would hold up the event loop.
MAX_SMALL_BYTES: Final = MIB


class Unsettled(Exception):
    """The request did not succeed, or whether it did is not known."""


@contextmanager
def unsettled() -> Iterator[None]:
    """A thread repeats what this project refuses, and says why."""
    try:
        yield
    except (StoreError, NoAnswer) as error:
        raise Unsettled(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class TlsAndProxy:
    """How requests reach a service: `tls` is None for plain HTTP, `proxy` is a URL."""

    tls: ssl.SSLContext | None = None
    proxy: str | None = None


@dataclass(frozen=True, slots=True)
class WholeObject:
    """A small object with its metadata; see `Reader`."""

    data: bytes
    attributes: ObjectAttributes
    not_carried: tuple[str, ...]
    stated: Stated | None = None


class AsyncRequests(Protocol):
    """The requests of one bucket. All methods run on an event loop and raise `Unsettled`."""

    async def read(self, key: str, *, length: int, if_match: str | None) -> WholeObject:
        """The object of `length` bytes, in the version `if_match`. 1 call."""

    async def head(self, key: str) -> ObjectInfo:
        """As `ObjectStore.head`, perhaps without a checksum. 1 call."""

    async def put(
        self,
        key: str,
        data: Body,
        *,
        attributes: ObjectAttributes,
        precondition: Precondition,
        crc32c: int,
    ) -> ObjectInfo:
        """As `ObjectStore.put`. 1 call."""


def requests_of(store: ObjectStore) -> AsyncRequests | None:
    """The attribute `async_requests` of a store.

    None where it has none, or the way to the bucket allows none, for example a signature of two
    regions.
    """
    # `isinstance` with a Protocol takes 5 microseconds before Python 3.12.
    found: AsyncRequests | None = getattr(store, "async_requests", None)
    return found
