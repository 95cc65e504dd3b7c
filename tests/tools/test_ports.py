"""No two servers that are about to start are given one port."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from tools.flags import LOOPBACK
from tools.ports import free_port

ROOT = Path(__file__).parents[2]
_OTHER = "from tools.ports import free_port; import sys; print(*(free_port() for _ in range(20))); sys.stdin.read()"


def test_a_port_is_not_given_again_while_its_server_is_still_to_start_or_has_been_killed() -> None:
    given = [free_port() for _ in range(1_000)]
    assert len(set(given)) == 1_000
    assert all(20_000 <= port < 32_768 for port in given)


def test_another_process_is_given_none_of_ours() -> None:
    ours = {free_port() for _ in range(128)}
    with subprocess.Popen(
        [sys.executable, "-c", _OTHER], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        assert len(theirs) == 20
        assert theirs.isdisjoint(ours | {free_port() for _ in range(128)})
        other.communicate()


def test_a_port_on_which_somebody_listens_is_passed_over() -> None:
    taken = free_port()
    with socket.create_server((LOOPBACK, taken)):
        assert taken not in {free_port() for _ in range(127)}
