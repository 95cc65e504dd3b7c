"""Lets a node's own network reach the API server: ``python passage.py PID PORT ADDRESS:PORT...``.

A node has a network namespace of its own, the API server listens on this machine's loopback. This process listens at
each ``ADDRESS:PORT`` in the namespace of process ``PID`` and passes bytes to loopback's ``PORT`` here; TLS goes through
untouched. It imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys

_CHUNK = 65_536


def listeners(pid: int, addresses: list[tuple[str, int]]) -> list[socket.socket]:
    """Return sockets that listen in another process's network; one belongs where it was made, not to who uses it.

    Raises OSError.
    """
    with open(f"/proc/{pid}/ns/net") as there, open("/proc/self/ns/net") as here:  # noqa: PTH123 - for their numbers
        _enter(there.fileno())
        try:
            return [socket.create_server(address) for address in addresses]
        finally:
            _enter(here.fileno())


def _enter(namespace: int) -> None:
    # os.setns came with Python 3.12.
    if ctypes.CDLL(None, use_errno=True).setns(namespace, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def serve(sockets: list[socket.socket], port: int) -> None:
    """Pass until killed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))

    servers = [await asyncio.start_server(connected, sock=one) for one in sockets]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main(arguments: list[str]) -> None:
    """Read the command line and serve."""
    pid, port, *wanted = arguments
    addresses = [(host, int(number)) for host, _, number in (each.rpartition(":") for each in wanted)]
    asyncio.run(serve(listeners(int(pid), addresses), int(port)))


if __name__ == "__main__":
    main(sys.argv[1:])
