"""A TCP proxy that holds back what a server says, each connection on its own: late answers and later watch events.

``python -m tools.lateproxy LISTEN_PORT TARGET_PORT SEED MOST_MS``. TLS passes through untouched.
"""

from __future__ import annotations

import asyncio
import random
import sys

_CHUNK = 65_536


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rng: random.Random, most_s: float) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            if most_s and rng.random() < 0.3:
                await asyncio.sleep(rng.random() * most_s)
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(listen_port: int, target_port: int, seed: int, most_s: float) -> None:
    """Proxy until killed."""
    rng = random.Random(seed)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", target_port)
        own = random.Random(rng.random())
        await asyncio.gather(_copy(reader, to_server[1], own, 0.0), _copy(to_server[0], writer, own, most_s))

    server = await asyncio.start_server(connected, "127.0.0.1", listen_port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    listen, target, seed_text, most_ms = (int(text) for text in sys.argv[1:])
    asyncio.run(serve(listen, target, seed_text, most_ms / 1000))
