"""The MPS daemon with the stub of NVIDIA's program: tenants come and go, and the control daemon fails in each way."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from nodeagent.core.mps import control as mpsnames
from nodeagent.core.mps.control import Wanted
from nodeagent.core.mps.limits import Held, Report
from nodeagent.mps.mps_daemon.control import Control, NoAnswer, Stopped
from nodeagent.mps.mps_daemon.loop import COMMANDS_NS, MpsDaemon
from tests.nodeagent.core.mps.test_mpssteps import GPU, OTHER, POD
from tests.nodeagent.mps.mps_daemon.conftest import Node

pytestmark = pytest.mark.thorough

SECOND = "00000000-1111-4222-8333-444444444444"
MINE, BESIDE = Wanted(POD, GPU, 5_120, 30), Wanted(SECOND, OTHER, 1_024, 100)
G, T = mpsnames.server(GPU), mpsnames.namespace(POD)


def wanting(node: Node, *wanted: Wanted) -> None:
    """As if the agent had sent them."""
    node.listener.said = wanted


def test_tenants_get_namespaces_with_both_limits_and_the_default_one_is_little(node: Node) -> None:
    wanting(node, MINE, BESIDE)
    node.serve()
    assert node.mps_daemon.turn() == Report((Held(MINE), Held(BESIDE)))
    assert node.state["servers"] == {G: GPU, mpsnames.server(OTHER): OTHER}
    limits = {name: (its["memory"], its["percent"]) for name, its in node.state["namespaces"].items()}
    assert limits == {
        f"{G}/default": ("1024M", "10.00"),
        f"{G}/{T}": ("5120M", "30.00"),
        f"{mpsnames.server(OTHER)}/default": ("1024M", "10.00"),
        f"{mpsnames.server(OTHER)}/{mpsnames.namespace(SECOND)}": ("1024M", "100.00"),
    }


def test_before_an_agent_has_spoken_nothing_is_changed(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.listener.said = None
    assert node.mps_daemon.turn() == Report()
    assert node.state["servers"] == {G: GPU}


def test_a_tenant_that_left_loses_its_namespace_when_its_programs_have_ended(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.program_of(POD, 7)
    node.change(clients=[[7, G, T, "train.py"]])
    assert node.mps_daemon.turn().held == (Held(MINE, was_joined=True),)
    wanting(node)
    assert node.mps_daemon.turn() == Report()
    assert f"{G}/{T}" in node.state["namespaces"]
    node.change(clients=[])
    node.mps_daemon.turn()
    node.mps_daemon.turn()
    assert (node.state["servers"], node.state["namespaces"]) == ({}, {})


def test_a_program_whose_name_is_a_line_of_the_list_makes_no_other_pod_joined(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    node.program_of(SECOND, 7)
    node.program_of(SECOND, 8)
    node.program_of("", 9)
    node.program_of(POD, 10)
    node.program_of(POD, 11)
    for what, line in (
        ("a process that is not there", f"12,{G},0,{T},x"),
        ("a process of another pod", f"8,{G},0,{T},x"),
        ("a process of no pod", f"9,{G},0,{T},x"),
        ("itself", f"7,{G},0,{T},x"),
        ("a process of the pod that is a client elsewhere", f"10,{G},0,{T},x"),
        ("a process of the pod, in another form", f"11,{G},{T}"),
    ):
        node.change(clients=[[7, G, "default", f"x\n{line}"], [10, G, "default", "y"]])
        assert node.mps_daemon.turn().held == (Held(MINE),), what


def test_a_namespace_whose_socket_is_gone_holds_nobody(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    (node.folder / "mps" / G / T / mpsnames.SOCKET).unlink()
    assert node.mps_daemon.turn().held == ()


def test_a_daemon_that_dies_is_started_again_and_gets_its_tenants_back(node: Node) -> None:
    wanting(node, MINE)
    node.serve()
    first = node.state["pid"]
    os.kill(first, signal.SIGKILL)
    os.waitid(os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert node.mps_daemon.turn().held == ()
    assert node.said[-1] == "the MPS control daemon has ended and is started again"
    node.now_ns += 2 * 10**9
    node.serve()
    assert node.state["pid"] != first
    assert node.mps_daemon.turn() == Report((Held(MINE),))


def test_a_daemon_that_fails_at_its_start_is_started_less_and_less_often(node: Node) -> None:
    node.program.write_text("#!/bin/sh\nexit 3\n")
    starts: list[int] = []
    for second in range(120):
        node.now_ns = second * 10**9
        node.mps_daemon.turn()
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
    node.control.patience_s = 0.2
    node.behave(hang="list")
    report = node.mps_daemon.turn()
    assert (report.held, report.why) == (
        (),
        "the MPS control daemon does not answer: no answer to server list in 0.2 s",
    )
    node.control.patience_s = 30.0
    node.behave()
    assert node.mps_daemon.turn().held == (Held(MINE),)
    assert node.state["pid"] == first
    node.close()


def test_a_gpu_whose_commands_hang_holds_up_no_other_one(folder: Path) -> None:
    node = Node(folder)
    wanting(node, MINE, BESIDE)
    node.serve()
    node.change(servers={}, namespaces={})
    node.behave(hang=G)
    node.control.patience_s = 2.0
    report = node.mps_daemon.turn()
    assert report == Report((Held(BESIDE),), f"{GPU}: no answer to server create in 2 s", gone=(GPU,))
    # In its pause it is not asked: with this patience the turn would not end.
    node.control.patience_s = 600.0
    assert node.mps_daemon.turn() == report
    node.behave()
    assert node.mps_daemon.turn() == report
    assert node.said.count(report.why) == 1
    node.now_ns += 60 * 10**9
    assert node.mps_daemon.turn().held == (Held(MINE), Held(BESIDE))
    node.close()


class SlowControl(Control):
    """Each command takes three seconds of the MPS daemon's clock."""

    def __init__(self, node: Node) -> None:
        super().__init__(str(node.program), pipes=node.control.pipes, logs=node.folder, patience_s=30.0)
        self.node, self.asked = node, 0

    @override
    def ask(self, words: Sequence[str], patience_s: float) -> str:
        if words[1] != "list":
            self.node.now_ns += 3 * 10**9
            self.asked += 1
        return super().ask(words, patience_s)


def test_a_turn_ends_in_time_and_the_next_one_goes_on(node: Node) -> None:
    wanting(node)
    node.serve()
    slow = SlowControl(node)
    mps_daemon = MpsDaemon(
        slow,
        node.daemon,
        node.listener,
        interval_ns=1,
        processes=node.processes,
        say=node.said.append,
        clock_ns=lambda: node.now_ns,
    )
    wanting(node, MINE, BESIDE)
    started_ns = node.now_ns
    assert mps_daemon.turn().held == ()
    assert (slow.asked, node.now_ns - started_ns) == (4, COMMANDS_NS + 2 * 10**9)
    assert mps_daemon.turn().held == (Held(MINE), Held(BESIDE))
    assert slow.asked == 8


def test_a_stop_waits_for_no_answer(folder: Path) -> None:
    node = Node(folder)
    node.behave(hang="")
    read, written = os.pipe()
    control = Control(str(node.program), pipes=folder / "mps", logs=folder, patience_s=600.0, stop=read)
    os.write(written, b"!")
    with pytest.raises(Stopped):
        control.look()
    mps_daemon = MpsDaemon(
        control, node.daemon, node.listener, interval_ns=1, processes=node.processes, say=node.said.append
    )
    mps_daemon.run(lambda: False)
    node.close()
    os.close(read)
    os.close(written)


def test_a_command_that_ends_its_output_and_not_itself_has_no_answer(folder: Path) -> None:
    node = Node(folder, patience_s=0.3)
    node.program.write_text("#!/bin/sh\nexec >&- 2>&-\nexec sleep 600\n")
    with pytest.raises(NoAnswer, match=r"no answer to server list in 0\.3 s"):
        node.control.look()
    node.close()


def test_a_program_that_is_not_there_is_said(folder: Path) -> None:
    node = Node(folder)
    node.program.unlink()
    assert node.mps_daemon.turn().why == "the MPS control daemon can't be started: No such file or directory"
    node.close()


@pytest.mark.parametrize("status", [0, 1])
def test_an_endless_answer_ends_with_the_patience_and_takes_no_memory(folder: Path, status: int) -> None:
    node = Node(folder, patience_s=0.3)
    node.program.write_text("#!/bin/sh\nexec cat /dev/zero\n" if status else "#!/bin/sh\nexec yes 1,a,0,b,c\n")
    assert node.mps_daemon.turn().held == ()
    node.close()


def test_a_limit_that_is_refused_holds_nobody_and_is_said(node: Node) -> None:
    node.behave(refuse=["namespace set"])
    wanting(node, MINE)
    node.serve()
    report = node.mps_daemon.turn()
    assert (report.held, report.why) == ((), f"{GPU}: namespace set: namespace set is refused")
