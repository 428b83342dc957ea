"""Forwards the connections of one port to others of this machine, as their first lines ask.

It is part of the boot script, so it imports the standard library only. `forwarding.py` has the
exchange.
"""

import asyncio
import resource
import sys

#: Until a caller has said what it wants, and that port has answered.
GREETING_TIMEOUT_S = 10
READ_BYTES = 1 << 16


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(READ_BYTES):
        writer.write(part)
        await writer.drain()


async def forward(address: str, port: int, first: int, last: int) -> None:
    async def opened(
        reader: asyncio.StreamReader,
    ) -> "tuple[asyncio.StreamReader, asyncio.StreamWriter]":
        word, number = (await reader.readline()).split()
        if word != b"skyplane" or not first <= int(number) <= last:
            raise ValueError(number)
        return await asyncio.open_connection(address, int(number))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            far, to_far = await asyncio.wait_for(opened(reader), GREETING_TIMEOUT_S)
            writers.append(to_far)
            writer.write(b"open\n")
            # The end of either is the end of both: nobody here closes one half.
            pumps = [asyncio.ensure_future(pump(reader, to_far))]
            pumps.append(asyncio.ensure_future(pump(far, writer)))
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for task in pumps:
                task.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, ValueError):
            pass
        finally:
            for one in writers:
                one.close()

    server = await asyncio.start_server(serve, address, port, limit=READ_BYTES)
    await server.serve_forever()


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(forward(sys.argv[1], *map(int, sys.argv[2:])))
