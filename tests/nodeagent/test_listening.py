from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodeagent.core.enforcement.messages import framed, read_caps, write_caps
from nodeagent.core.enforcement.overuse import Key
from nodeagent.listener import Listener

POD = "3f1c2a52-6d0c-4d55-9a30-3d5c7e0b6f3e"
CAPS = {(POD, "GPU-a"): 1024}


@dataclass
class Door:
    path: Path
    said: list[str] = field(default_factory=list)
    peers: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listener = Listener(str(self.path), read=read_caps, say=self.said.append)

    def agent(self) -> socket.socket:
        peer = socket.socket(socket.AF_UNIX)
        peer.settimeout(10)
        peer.connect(str(self.path))
        self.peers.append(peer)
        self.turn()
        return peer

    def caps(self) -> Mapping[Key, int] | None:
        return self.listener.said

    def turn(self) -> None:
        """Take what has come; the kernel has it at once."""
        for _ in range(3):
            self.listener.wait(0)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    made = Door(tmp_path / "run" / "memory-enforcer.sock")
    yield made
    made.listener.close()
    for peer in made.peers:
        peer.close()


def test_it_is_for_one_user_alone(door: Door) -> None:
    assert stat.S_IMODE(door.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(door.path.parent.stat().st_mode) == 0o700


def test_caps_are_those_that_were_sent_last(door: Door) -> None:
    agent = door.agent()
    assert door.caps() is None
    agent.send(write_caps(CAPS))
    door.turn()
    assert door.caps() == CAPS
    agent.send(write_caps({}) + write_caps({(POD, "GPU-b"): 5}))
    door.turn()
    assert door.caps() == {(POD, "GPU-b"): 5}


def test_an_agent_that_goes_away_leaves_its_caps(door: Door) -> None:
    agent = door.agent()
    agent.send(write_caps(CAPS))
    agent.close()
    door.turn()
    assert door.caps() == CAPS
    door.agent().send(write_caps({}))
    door.turn()
    assert door.caps() == {}


@pytest.mark.parametrize("sent", [framed({"kill": [1]}), framed([]), b"\xff\xff\xff\xff", b"\x00\x00\x00\x01{"])
def test_what_is_no_message_closes_the_connection_and_changes_no_cap(door: Door, sent: bytes) -> None:
    agent = door.agent()
    agent.send(write_caps(CAPS))
    agent.send(sent)
    door.turn()
    assert door.caps() == CAPS
    assert agent.recv(1) == b""
    assert len(door.said) == 1
    assert door.said[0].endswith("allowed")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(min_size=1, max_size=200))
def test_no_bytes_end_it(door: Door, sent: bytes) -> None:
    with door.agent() as agent:
        agent.send(sent)
        door.turn()
    assert door.caps() is None


def test_who_comes_third_takes_the_place_of_the_first(door: Door) -> None:
    first, second, third = door.agent(), door.agent(), door.agent()
    assert first.recv(1) == b""
    assert door.listener.send(framed("report"))
    assert second.recv(100) == third.recv(100) == framed("report")


def test_a_socket_that_was_left_over_is_replaced(door: Door) -> None:
    again = Listener(str(door.path), read=read_caps, say=door.said.append)
    peer = door.agent()
    peer.send(write_caps(CAPS))
    again.wait(0)
    again.wait(0)
    assert again.said == CAPS
    again.close()


def test_who_reads_nothing_holds_nothing_up_and_gets_the_newest_when_it_reads(door: Door) -> None:
    agent = door.agent()
    report = framed("r" * 100_000)
    taken = 0
    while door.listener.send(report):
        taken += 1
        assert taken < 100
    assert not door.listener.send(report)
    for _ in range(taken):
        got = b""
        while len(got) < len(report):
            door.turn()
            got += agent.recv(len(report) - len(got))
        assert got == report
    assert door.listener.send(framed("newest"))
    assert agent.recv(100) == framed("newest")


def test_who_sends_without_end_is_read_up_to_the_deadline(door: Door) -> None:
    """A message that never ends: its bytes are taken, up to the bound, and the look comes when it is due."""
    agent = door.agent()
    agent.setblocking(False)
    agent.send((4 << 20).to_bytes(4, "big"))
    until_ns = time.monotonic_ns() + 20_000_000
    while time.monotonic_ns() < until_ns:
        try:
            agent.send(b" " * 65_536)
        except BlockingIOError:
            door.listener.wait(0)
        except (BrokenPipeError, ConnectionResetError):
            break  # on a fast machine all of it was sent: it is no message, and its sender was dropped
    door.listener.wait(until_ns)
    assert door.caps() is None


def test_nobody_listens_is_told(door: Door) -> None:
    assert not door.listener.send(framed("report"))
    door.agent().close()
    door.turn()
    assert not door.listener.send(framed("report"))


def test_a_peer_that_is_gone_when_it_is_told_is_dropped(door: Door) -> None:
    door.agent().close()
    assert not door.listener.send(framed("report"))
    door.turn()
    assert not door.listener.send(framed("report"))


def test_it_can_be_woken(door: Door) -> None:
    read, written = os.pipe()
    door.listener.wake_by(read)
    os.write(written, b"!")
    door.listener.wait(time.monotonic_ns() + 60 * 10**9)
    os.close(read)
    os.close(written)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_refused_even_where_the_file_would_let_it() -> None:
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder) / "memory-enforcer.sock"
        listener = Listener(str(path), read=read_caps, say=said.append)
        path.chmod(0o666)
        program = (
            "import os, socket, sys; os.setuid(65534); peer = socket.socket(socket.AF_UNIX); peer.settimeout(30);"
            "peer.connect(sys.argv[1]); print(peer.recv(1))"
        )
        other = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
        while other.poll() is None:
            listener.wait(time.monotonic_ns() + 5_000_000)
        assert other.communicate()[0] == b"b''\n"
        listener.close()
    assert listener.said is None
    assert "of user 65534 was refused" in said[0]
