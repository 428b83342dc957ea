"""One HTTP client session per event loop, shared by all stores of the process."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakKeyDictionary

import aiohttp

#: Waits for a connection and for the next bytes of a response, as for requests in threads.
_TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
#: aiohttp would add them; a signature covers some, and stores keep a content type.
_SKIPPED_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()


def http_session() -> aiohttp.ClientSession:
    """The session of the running loop.

    The limiter of each bucket bounds the connections. Bodies are not decompressed: they are
    objects.
    """
    loop = asyncio.get_running_loop()
    session = _sessions.get(loop)
    if session is None or session.closed:
        session = _sessions[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=_TIMEOUT,
            skip_auto_headers=_SKIPPED_HEADERS,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
    return session


async def close_http_session() -> None:
    """Close the connections of the running loop's session."""
    session = _sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()
