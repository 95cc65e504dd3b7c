"""What the small processes of a node share, the memory enforcer and the MPS daemon: their socket, and how they stop.

On the socket the agent sends what it wants and gets reports: for the user that listens, and nobody else. Who is on it
can hold nothing up: reading has a deadline, and reports that a peer does not read are not kept for it. Kills are kept,
up to a bound, until a peer has taken them.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final, Generic, TypeVar

from nodeagent.core.enforcement.messages import Frames, MalformedMessage


class Stop:
    """Whether a signal said stop; ``file`` can be read from then on."""

    def __init__(self) -> None:
        self._is_set = False
        self.file, self._written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._is_set

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self._is_set = True
        os.write(self._written, b"!")


def say(message: str) -> None:
    """Write one line, whatever signs the message has."""
    sys.stderr.write("".join(sign if sign.isprintable() else "?" for sign in message) + "\n")
    sys.stderr.flush()


#: The agent, and the one that takes its place.
_MOST_PEERS: Final = 2
_READ_BYTES: Final = 1 << 16
_Said = TypeVar("_Said")
#: PID, user and group of a peer.
_CREDENTIALS: Final = struct.Struct("iII")


class _Peer:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.frames = Frames()
        self.unsent = b""

    def flush(self) -> None:
        """Write what it takes now. Raises OSError when it is gone."""
        with contextlib.suppress(BlockingIOError):
            while self.unsent:
                self.unsent = self.unsent[self.connection.send(self.unsent) :]


class Listener(Generic[_Said]):
    """The socket. ``said``: what was sent last, None before that. A peer that goes away leaves it.

    ``read`` makes it of a message, or raises MalformedMessage.
    """

    def __init__(self, path: str, *, read: Callable[[bytes], _Said], say: Callable[[str], None]) -> None:
        self.said: _Said | None = None
        self._read_message = read
        self._has_news = False
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._peers: list[_Peer] = []
        self._listening = _bound(path)
        self._selector.register(self._listening, selectors.EVENT_READ)

    def close(self) -> None:
        """Close the socket and its peers."""
        while self._peers:
            self._drop(self._peers[0], "")
        self._selector.close()
        self._listening.close()

    def wake_by(self, file: int) -> None:
        """Have ``wait`` return when there is something to read from this file."""
        self._selector.register(file, selectors.EVENT_READ)

    def wait(self, until_ns: int, *, for_news: bool = False) -> None:
        """Take what peers send until a time of the monotonic clock, or until woken; at least what is there already.

        ``for_news``: no longer than until a message has come, also before this call.
        """
        while not (for_news and self._has_news):
            left_ns = max(until_ns - time.monotonic_ns(), 0)
            for key, events in self._selector.select(left_ns / 1e9):
                if key.fileobj is self._listening:
                    self._accept()
                elif isinstance(key.data, _Peer):
                    self._serve(key.data, events)
                else:
                    return
            if left_ns == 0:
                break
        self._has_news = self._has_news and not for_news

    def send(self, report: bytes) -> bool:
        """Send a report to each peer that has read the last one; whether there was any."""
        is_taken = False
        for peer in tuple(self._peers):
            if not peer.unsent:
                peer.unsent = report
                is_taken = self._flush(peer) or is_taken
        return is_taken

    def _serve(self, peer: _Peer, events: int) -> None:
        if peer in self._peers and events & selectors.EVENT_WRITE:
            self._flush(peer)
        if peer in self._peers and events & selectors.EVENT_READ:
            self._read(peer)

    def _flush(self, peer: _Peer) -> bool:
        """Write, and go on when it takes more; whether it is still there."""
        try:
            peer.flush()
        except OSError as error:
            self._drop(peer, str(error))
            return False
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.unsent else 0)
        self._selector.modify(peer.connection, wanted, peer)
        return True

    def _accept(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return
        connection.setblocking(False)
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(told)
        if user != os.geteuid():
            self._say(f"socket: process {pid} of user {user} was refused; user {os.geteuid()} is allowed")
            connection.close()
            return
        if len(self._peers) == _MOST_PEERS:
            self._drop(self._peers[0], "another agent has come")
        peer = _Peer(connection)
        self._peers.append(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _read(self, peer: _Peer) -> None:
        try:
            read = peer.connection.recv(_READ_BYTES)
            if not read:
                self._drop(peer, "")
                return
            for message in peer.frames.cut(read):
                self.said = self._read_message(message)
                self._has_news = True
        except BlockingIOError:
            return
        except (OSError, MalformedMessage) as error:
            self._drop(peer, str(error))

    def _drop(self, peer: _Peer, why: str) -> None:
        if why:
            self._say(f"socket: connection closed: {why}")
        self._selector.unregister(peer.connection)
        peer.connection.close()
        self._peers.remove(peer)


def _bound(path: str) -> socket.socket:
    """Make the socket, in place of one that an earlier process has left. Nobody else can open it at any moment."""
    Path(path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        Path(path).unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(path)
    finally:
        os.umask(before)
    listening.listen(_MOST_PEERS)
    listening.setblocking(False)
    return listening
