"""An HTTP/1.1 proxy before a real store that harms chosen requests and counts what is PUT.

In a test, `running(upstream)` gives a `FaultProxy` in a thread of its own. As a process,
`python -m tests.faults.http_proxy UPSTREAM [--port P] [--rules FILE]`
prints one line of JSON with its URL; `GET /-proxy/counts` answers what it counted,
`GET /-proxy/exchanges` every request, and `POST /-proxy/rules` takes further rules (a JSON
list).

Bodies are passed on as they come; only one that is rewritten is held. Every request has a
connection of its own to the store, so that no idle one can fail; the client's stays open.
Host is passed on as it came, so signatures hold.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.faults.http_messages import (
    BUFFER_BYTES,
    Head,
    Malformed,
    read_head,
    reply_body,
    request_body,
    unchunked,
)
from tests.faults.http_rules import Rule, Schedule

_CONTROL = "/-proxy/"

#: How often a request that is held looks whether it may go.
_LOOK_S = 0.02


@dataclass(slots=True)
class Exchange:
    """One request as the proxy saw it.

    Attributes:
        fault: the action of the rule that it met, or None.
        status: what the client was answered; None when it was answered nothing.
        store_status: what the store answered; None when it was not asked, or did not.
        request_bytes: of the body, as it came from the client.
        reply_bytes: of the body, as they went to the client.
    """

    method: str
    target: str
    fault: str | None = None
    status: int | None = None
    store_status: int | None = None
    request_bytes: int = 0
    reply_bytes: int = 0

    @property
    def key(self) -> str:
        """`bucket/key`, decoded."""
        return unquote(self.target.partition("?")[0].lstrip("/"))

    @property
    def is_put(self) -> bool:
        return self.method == "PUT" and "/" in self.key


@dataclass
class Log:
    """What went through. Read it when the transfer is over."""

    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def put_bytes_by_key(self) -> Counter[str]:
        """Body bytes of PUT that clients sent, parts and refused attempts among them.

        Framing of chunked bodies counts too; boto3 sends none with a plain body.
        """
        counts: Counter[str] = Counter()
        for each in list(self.exchanges):
            if each.is_put:
                counts[each.key] += each.request_bytes
        return counts

    @property
    def put_bytes(self) -> int:
        return self.put_bytes_by_key.total()

    def counts(self) -> dict[str, Any]:
        return {
            "requests": len(self.exchanges),
            "faults": sum(each.fault is not None for each in list(self.exchanges)),
            "put_bytes": self.put_bytes,
            "put_bytes_by_key": dict(self.put_bytes_by_key),
        }


class FaultProxy:
    """See the module. `serve` runs it in an event loop; the rest may be called from any thread."""

    def __init__(self, upstream: str, rules: list[Rule] | None = None) -> None:
        parts = urlsplit(upstream)
        self._upstream = (parts.hostname or "127.0.0.1", parts.port or 80)
        self.schedule = Schedule(list(rules or []))
        self.log = Log()
        self.url = ""
        self._clients: set[asyncio.Task[None]] = set()
        self._is_released = self._is_dropped = False

    def release(self, *, drop: bool = False) -> None:
        """Release the requests that `hold` rules hold; the rules hold no more.

        Args:
            drop: close their connections, so that the store never gets them.
        """
        self._is_dropped = drop
        self._is_released = True

    async def serve(self, host: str = "127.0.0.1", port: int = 0) -> asyncio.Server:
        server = await asyncio.start_server(self._client, host, port, limit=BUFFER_BYTES)
        bound = server.sockets[0].getsockname()
        self.url = f"http://{bound[0]}:{bound[1]}"
        return server

    async def stop(self, server: asyncio.Server) -> None:
        """End it, connections and all."""
        server.close()
        for task in list(self._clients):
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            # A broken client or store ends its connection; the test sees that in its own store.
            with suppress(Malformed, ConnectionError, asyncio.CancelledError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            self._clients.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection may be used again."""
        head = await read_head(reader)
        if head is None:
            return False
        if head.target.startswith(_CONTROL):
            return await self._control(head, reader, writer)
        rule = self.schedule.due(head.method, head.target, head.headers)
        exchange = Exchange(head.method, head.target, rule.action if rule else None)
        self.log.exchanges.append(exchange)
        incoming = _Incoming(head, reader, exchange)
        if rule is not None and rule.action == "drop-request":
            await incoming.read_off()
            return False
        if rule is not None and rule.action == "answer" and not rule.forward:
            return await self._answer(rule, incoming, writer)
        if rule is not None and rule.action == "delay":
            await asyncio.sleep(rule.delay_s)
        if _is(rule, "hold") and not await self._passes(incoming):
            return False
        return await self._forward(rule, incoming, writer)

    async def _passes(self, incoming: _Incoming) -> bool:
        """Wait for the release; whether the request may go on.

        Its body is read meanwhile: clients do not wait long for somebody who takes nothing.
        """
        is_held = not self._is_released
        if is_held:
            await incoming.keep()
        while not self._is_released:  # noqa: ASYNC110 - an Event would not do: `release` is
            await asyncio.sleep(_LOOK_S)  # called from any thread
        return not (is_held and self._is_dropped)

    async def _answer(self, rule: Rule, incoming: _Incoming, writer: asyncio.StreamWriter) -> bool:
        """Answer in the store's place; a body that is under way is read first."""
        is_kept = await incoming.read_off()
        await _write_answer(writer, rule, incoming.exchange, close=not is_kept)
        return is_kept and not incoming.head.closes

    async def _forward(
        self, rule: Rule | None, incoming: _Incoming, writer: asyncio.StreamWriter
    ) -> bool:
        store_reader, store_writer = await asyncio.open_connection(
            *self._upstream, limit=BUFFER_BYTES
        )
        head = incoming.head
        if _is(rule, "whole") and not _signs_range(head):
            head = head.without("Range")
        sending = asyncio.create_task(_send(head, incoming, store_writer))
        try:
            reply = await _final_head(store_reader, writer, incoming)
            incoming.exchange.store_status = reply.status
            body = reply_body(head.method, reply, store_reader)
            is_kept = await _reply(rule, incoming, reply, body, writer)
            if is_kept and not (head.closes or incoming.waits_for_continue):
                # The store may answer before the last piece has left us.
                await sending
                return True
            return False
        finally:
            sending.cancel()
            with suppress(Malformed, ConnectionError, asyncio.CancelledError):
                await sending
            store_writer.close()

    async def _control(
        self, head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        asked = b"".join([piece async for piece in request_body(head, reader)])
        if head.method == "POST":
            self.schedule.add(*[Rule.from_dict(each) for each in json.loads(asked)])
        wants_all = head.target == f"{_CONTROL}exchanges"
        told = [asdict(each) for each in self.log.exchanges] if wants_all else self.log.counts()
        answer = json.dumps(told).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)
        await writer.drain()
        return True


@dataclass(slots=True)
class _Incoming:
    """A request whose body is still with the client."""

    head: Head
    reader: asyncio.StreamReader
    exchange: Exchange
    waits_for_continue: bool = field(init=False)
    _kept: bytes | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.waits_for_continue = bool(self.head.get("Expect"))

    async def read_off(self) -> bool:
        """Read the body away; False when none comes, since the client was not told to go on."""
        if self.waits_for_continue:
            return False
        async for _ in self.body():
            pass
        return True

    async def keep(self) -> None:
        """Read the body now; `body` gives it later."""
        self._kept = b"".join([piece async for piece in self.body()])

    async def body(self) -> AsyncGenerator[bytes, None]:
        if self._kept is not None:
            yield self._kept
            return
        async for piece in request_body(self.head, self.reader):
            self.exchange.request_bytes += len(piece)
            yield piece


async def _send(head: Head, incoming: _Incoming, store: asyncio.StreamWriter) -> None:
    store.write(head.encode())
    async for piece in incoming.body():
        store.write(piece)
        await store.drain()
    await store.drain()


async def _final_head(
    store: asyncio.StreamReader, client: asyncio.StreamWriter, incoming: _Incoming
) -> Head:
    """The answer's head; `100 Continue` before it is passed on at once."""
    while True:
        head = await read_head(store)
        if head is None:
            raise Malformed("the store closed the connection without an answer")
        if head.status >= 200:
            return head
        incoming.waits_for_continue = False
        client.write(head.encode())
        await client.drain()


async def _reply(
    rule: Rule | None,
    incoming: _Incoming,
    reply: Head,
    body: AsyncGenerator[bytes, None],
    writer: asyncio.StreamWriter,
) -> bool:
    """Pass the store's answer on, or what the rule makes of it; False: close the connection."""
    exchange = incoming.exchange
    if rule is not None and rule.action in ("answer", "drop-reply", "reset"):
        async for _ in body:
            pass
        if rule.action == "answer":
            await _write_answer(writer, rule, exchange, close=False)
        elif rule.action == "reset":
            _arm_reset(writer)
        return rule.action == "answer"
    if rule is not None and rule.action == "rewrite":
        reply, body = _rewritten(rule, reply, b"".join([piece async for piece in body]))
    if _is(rule, "whole") and reply.status == 206:
        # The store was asked for the range all the same; only its answer says otherwise.
        reply = Head("HTTP/1.1 200 OK", reply.without("Content-Range").headers)
    exchange.status = reply.status
    # The store's connection ends here, the client's need not.
    first = reply.first.replace("HTTP/1.0", "HTTP/1.1", 1)
    writer.write(Head(first, reply.without("Connection").headers).encode())
    left = rule.keep_bytes if rule is not None and rule.action == "truncate" else None
    async with aclosing(body):
        async for piece in body:
            sent = piece if left is None else piece[:left]
            exchange.reply_bytes += len(sent)
            writer.write(sent)
            await writer.drain()
            if left is not None:
                left -= len(sent)
                if left == 0:
                    return False
    await writer.drain()
    return _ends_by_itself(incoming.head.method, reply)


def _signs_range(head: Head) -> bool:
    """Whether a request without its Range would be refused (AWS signature version 4)."""
    _, _, signed = head.get("Authorization").partition("SignedHeaders=")
    return "range" in signed.partition(",")[0].split(";")


def _ends_by_itself(method: str, reply: Head) -> bool:
    """Whether the client can tell the body's end while the connection stays open."""
    has_none = method == "HEAD" or reply.status in (204, 304)
    return has_none or reply.is_chunked or bool(reply.get("Content-Length"))


def _rewritten(rule: Rule, reply: Head, whole: bytes) -> tuple[Head, AsyncGenerator[bytes, None]]:
    if reply.is_chunked:
        whole = unchunked(whole)
    changed = re.sub(rule.pattern, rule.replacement, whole, flags=re.DOTALL)

    async def once() -> AsyncGenerator[bytes, None]:
        yield changed

    head = reply.without("Transfer-Encoding").plus("Content-Length", str(len(changed)))
    return head, once()


async def _write_answer(
    writer: asyncio.StreamWriter, rule: Rule, exchange: Exchange, *, close: bool
) -> None:
    head = Head(f"HTTP/1.1 {rule.status} Scripted", rule.headers)
    head = head.plus("Content-Length", str(len(rule.body)))
    if close:
        head = head.plus("Connection", "close")
    body = b"" if exchange.method == "HEAD" else rule.body
    # Noted first: once written, the client may look at the log.
    exchange.status, exchange.reply_bytes = rule.status, len(body)
    writer.write(head.encode() + body)
    await writer.drain()


def _arm_reset(writer: asyncio.StreamWriter) -> None:
    """Closing now sends RST: nothing lingers."""
    held: socket.socket = writer.get_extra_info("socket")
    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _is(rule: Rule | None, *actions: str) -> bool:
    return rule is not None and rule.action in actions


@contextmanager
def running(upstream: str, rules: list[Rule] | None = None) -> Iterator[FaultProxy]:
    """A proxy in a thread of its own, ended with the block."""
    proxy = FaultProxy(upstream, rules)
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(proxy.serve())
    thread = threading.Thread(target=loop.run_forever, name="fault-proxy", daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(proxy.stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _main(arguments: argparse.Namespace, rules: list[Rule]) -> None:
    proxy = FaultProxy(arguments.upstream, rules)
    server = await proxy.serve(port=arguments.port)
    print(json.dumps({"url": proxy.url}), flush=True)
    async with server:
        await server.serve_forever()


def _rules(arguments: argparse.Namespace) -> list[Rule]:
    text = Path(arguments.rules).read_text() if arguments.rules else "[]"
    return [Rule.from_dict(each) for each in json.loads(text)]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A proxy that harms requests to a store.")
    parser.add_argument("upstream", help="where the store answers: http://host:port")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--rules", help="a JSON list of rules")
    return parser.parse_args()


if __name__ == "__main__":
    given = _arguments()
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(given, _rules(given)))
