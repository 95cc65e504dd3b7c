"""Lets a node's own network reach the API server, and back: ``python netns_proxy.py PID PORT SOCKET ADDRESS:PORT...``.

A node has a network namespace of its own, the API server listens on this machine's loopback. This process listens at
each ``ADDRESS:PORT`` in the namespace of process ``PID`` and passes bytes to loopback's ``PORT`` here; TLS goes through
untouched. Who asks at the Unix socket ``SOCKET`` for an address (HTTP's CONNECT, as the API server's egress selector
does) is passed on to it from within the namespace; "-" for none. It imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys

_CHUNK = 65_536
_NONE = "-"


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


class _Inside:
    """Connections that begin in another process's network."""

    def __init__(self, pid: int) -> None:
        self._there = open(f"/proc/{pid}/ns/net")  # noqa: PTH123, SIM115 - for its number, as long as this process
        self._here = open("/proc/self/ns/net")  # noqa: PTH123, SIM115 - as above

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Raises OSError."""
        _enter(self._there.fileno())
        try:
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        finally:
            _enter(self._here.fileno())
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, (host, port))
        except OSError:
            made.close()
            raise
        return await asyncio.open_connection(sock=made)

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one CONNECT."""
        try:
            host, port = _asked(await reader.readuntil(b"\r\n\r\n"))
            there_reader, there_writer = await self.connect(host, port)
        except (OSError, ValueError, asyncio.IncompleteReadError) as error:
            print(error, flush=True)
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))


def _asked(head: bytes) -> tuple[str, int]:
    """The address of a CONNECT. Raises ValueError for anything else."""
    method, target, _ = head.decode().split("\r\n", 1)[0].split(" ")
    host, _, port = target.rpartition(":")
    if method != "CONNECT":
        raise ValueError(f"{method} is not CONNECT")
    return host, int(port)


async def serve(sockets: list[socket.socket], port: int, inside: _Inside, back: str) -> None:
    """Pass until killed."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionError:
            writer.close()
            return
        await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))

    servers: list[asyncio.Server] = [await asyncio.start_server(connected, sock=one) for one in sockets]
    if back != _NONE:
        servers.append(await asyncio.start_unix_server(inside.pass_on, back))
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main(arguments: list[str]) -> None:
    """Read the command line and serve."""
    pid, port, back, *wanted = arguments
    addresses = [(host, int(number)) for host, _, number in (each.rpartition(":") for each in wanted)]
    asyncio.run(serve(listeners(int(pid), addresses), int(port), _Inside(int(pid)), back))


if __name__ == "__main__":
    main(sys.argv[1:])
