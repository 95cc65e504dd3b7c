"""The keeper with the stub of NVIDIA's program: tenants come and go, and the daemon fails in each way."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nodeagent.core import mps
from nodeagent.core.mps import Wanted
from nodeagent.core.mpsmessages import Report
from nodeagent.core.mpssteps import Held
from tests.nodeagent.core.test_mps import GPU, OTHER, POD
from tests.nodeagent.keeper.conftest import Node

SECOND = "00000000-1111-4222-8333-444444444444"
MINE, BESIDE = Wanted(POD, GPU, 5_120, 30), Wanted(SECOND, OTHER, 1_024, 100)
G, T = mps.server(GPU), mps.namespace(POD)


def wanting(node: Node, *wanted: Wanted) -> None:
    """As if the agent had sent them."""
    node.listener.said = wanted


def test_tenants_get_namespaces_with_both_limits_and_the_default_one_is_little(node: Node) -> None:
    wanting(node, MINE, BESIDE)
    node.serve()
    assert node.keeper.turn() == Report((Held(MINE), Held(BESIDE)))
    assert node.state["servers"] == {G: GPU, mps.server(OTHER): OTHER}
    limits = {name: (its["memory"], its["percent"]) for name, its in node.state["namespaces"].items()}
    assert limits == {
        f"{G}/default": ("1024M", "10.00"),
        f"{G}/{T}": ("5120M", "30.00"),
        f"{mps.server(OTHER)}/default": ("1024M", "10.00"),
        f"{mps.server(OTHER)}/{mps.namespace(SECOND)}": ("1024M", "100.00"),
    }


def test_before_an_agent_has_spoken_nothing_is_changed(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.listener.said = None
    assert node.keeper.turn() == Report()
    assert node.state["servers"] == {G: GPU}


def test_a_tenant_that_left_loses_its_namespace_when_its_programs_have_ended(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.change(clients=[[7, G, T, "train.py"]])
    assert node.keeper.turn().held == (Held(MINE, was_joined=True),)
    wanting(node)
    assert node.keeper.turn() == Report()
    assert f"{G}/{T}" in node.state["namespaces"]
    node.change(clients=[])
    node.keeper.turn()
    node.keeper.turn()
    assert (node.state["servers"], node.state["namespaces"]) == ({}, {})


def test_a_tenant_stays_joined_between_two_of_its_programs(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.change(clients=[[7, G, T, "train.py"]])
    node.keeper.turn()
    node.change(clients=[])
    assert node.keeper.turn().held == (Held(MINE, was_joined=True),)


def test_a_program_without_a_namespace_joins_nobody(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.change(clients=[[7, G, "default", f"x,\n8,{G},{T}"], [9, "other", T, "x"]])
    assert node.keeper.turn().held == (Held(MINE),)


def test_a_server_that_died_holds_nobody_until_it_was_made_again(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.change(servers={}, namespaces={})
    node.behave(refuse=["server create"])
    report = node.keeper.turn()
    assert (report.held, report.why) == ((), f"{GPU}: server create: server create is refused")
    node.behave()
    assert node.keeper.turn() == Report((Held(MINE),))


def test_a_limit_that_is_refused_holds_nobody_and_is_said(node: Node) -> None:
    node.behave(refuse=["namespace set"])
    wanting(node, MINE)
    node.serve()
    report = node.keeper.turn()
    assert (report.held, report.why) == ((), f"{GPU}: namespace set: namespace set is refused")


def test_a_namespace_whose_socket_is_gone_holds_nobody(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    (node.folder / "mps" / G / T / mps.SOCKET).unlink()
    assert node.keeper.turn().held == ()


def test_a_daemon_that_dies_is_started_again_and_gets_its_tenants_back(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    first = node.state["pid"]
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert node.keeper.turn().held == ()
    assert node.said[-1] == "the MPS control daemon has ended and is started again"
    node.now_ns += 2 * 10**9
    node.serve()
    assert node.state["pid"] != first
    assert node.keeper.turn() == Report((Held(MINE),))


def test_a_daemon_that_fails_at_its_start_is_started_less_and_less_often(node: Node) -> None:
    node.program.write_text("#!/bin/sh\nexit 3\n")
    starts: list[int] = []
    for second in range(120):
        node.now_ns = second * 10**9
        node.keeper.turn()
        started = sum("was started" in line for line in node.said)
        if len(starts) < started:
            starts.append(second)
    assert len(starts) <= 8
    assert starts[-1] - starts[-2] >= 30


def test_a_daemon_that_hangs_is_not_ended_as_its_clients_would_be(folder: Path) -> None:
    node = Node(folder)
    wanting(node, MINE)
    node.serve()
    first = node.state["pid"]
    node.control._patience_s = 0.2
    node.behave(hang=True)
    report = node.keeper.turn()
    assert (report.held, report.why) == (
        (),
        "the MPS control daemon does not answer: no answer to server list in 0.2 s",
    )
    node.control._patience_s = 30.0
    node.behave()
    assert node.keeper.turn().held == (Held(MINE),)
    assert node.state["pid"] == first
    node.close()


def test_a_program_that_is_not_there_is_said(folder: Path) -> None:
    node = Node(folder)
    node.program.unlink()
    assert node.keeper.turn().why == "the MPS control daemon can't be started: No such file or directory"
    node.close()


@pytest.mark.parametrize("status", [0, 1])
def test_an_endless_answer_ends_with_the_patience_and_takes_no_memory(folder: Path, status: int) -> None:
    node = Node(folder, patience_s=0.3)
    node.program.write_text("#!/bin/sh\nexec cat /dev/zero\n" if status else "#!/bin/sh\nexec yes 1,a,0,b,c\n")
    assert node.keeper.turn().held == ()
    node.close()
