"""One aiohttp session per event loop, shared by all stores of the process.

It serves requests through proxies, and those that `http_client` does not send.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from skyplane_gateway.common.objects import Body
from skyplane_gateway.stores.async_requests import Unsettled
from skyplane_gateway.stores.http_client import MAX_ANSWER_BYTES, Answer

if TYPE_CHECKING:
    import aiohttp

#: aiohttp would add them; a signature covers some, and stores keep a content type.
_SKIPPED_HEADERS: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")

_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()


def http_session() -> aiohttp.ClientSession:
    """The session of the running loop.

    The limiter of each bucket bounds the connections. Bodies are not decompressed: they are
    objects.
    """
    import aiohttp  # It takes 0.1 s to load.

    loop = asyncio.get_running_loop()
    session = _sessions.get(loop)
    if session is None or session.closed:
        session = _sessions[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            # Waits for a connection and for the next bytes, as for requests in threads.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60),
            skip_auto_headers=_SKIPPED_HEADERS,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
    return session


async def send_by_session(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: Body = b"",
    *,
    tls: ssl.SSLContext | None,
    proxy: str | None,
) -> Answer:
    """As `http_client.send`, with a proxy if need be; the session names the host."""
    import aiohttp
    from yarl import URL

    try:
        async with http_session().request(
            method,
            URL(url, encoded=True),
            headers=headers,
            data=body if method in ("PUT", "POST") else None,
            allow_redirects=False,
            ssl=tls or True,
            proxy=proxy,
        ) as answer:
            found = bytearray()
            async for piece in answer.content.iter_any():
                found += piece
                if len(found) > MAX_ANSWER_BYTES:
                    raise Unsettled("the answer is longer than it should be")
            return Answer(answer.status, answer.raw_headers, bytes(found))
    except (TimeoutError, aiohttp.ClientError, OSError) as error:
        raise Unsettled(f"{type(error).__name__}: {error}") from error


async def close_http_session() -> None:
    """Close the connections of the running loop's session."""
    session = _sessions.pop(asyncio.get_running_loop(), None)
    if session is not None:
        await session.close()
