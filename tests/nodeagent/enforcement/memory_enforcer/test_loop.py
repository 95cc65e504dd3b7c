from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pynvml
import pytest
from typing_extensions import override

from nodeagent.core.enforcement.messages import Frames, Limited, Report, read_caps, read_report, write_caps
from nodeagent.core.enforcement.overuse import MIB, Device, History, Judgement, Key, Process, Rules, Sample, Seen, judge
from nodeagent.enforcement.memory_enforcer.limits import Groups as PodGroups
from nodeagent.enforcement.memory_enforcer.limits import Limiting
from nodeagent.enforcement.memory_enforcer.loop import ASKED, ENDED, GONE, OTHER, REFUSED, Ending, MemoryEnforcer, Pace
from nodeagent.enforcement.memory_enforcer.sampling import Sampler
from nodeagent.listener import Listener
from nodeagent.processes import Processes
from tests.nodeagent.enforcement.memory_enforcer.conftest import Machine
from tests.nodeagent.groups import Groups

SECOND = 10**9


@dataclass
class Node:
    """A memory enforcer in virtual time, and an agent on its socket."""

    machine: Machine
    listener: Listener[dict[Key, int]]
    agent: socket.socket
    said: list[str]
    now_ns: int = 0

    def __post_init__(self) -> None:
        self._frames = Frames()
        self.restart(Rules(dry_run=False))

    def restart(self, rules: Rules, control_groups: Path | None = None) -> None:
        processes = Processes()
        self.enforcer = MemoryEnforcer(
            Sampler(pynvml, processes),
            Ending(processes),
            self.listener,
            rules=rules,
            pace=Pace(),
            say=self.said.append,
            limiting=None if control_groups is None else Limiting(pynvml, PodGroups(str(control_groups))),
            clock_ns=lambda: self.now_ns,
        )

    def cap(self, caps: dict[Key, int]) -> None:
        self.agent.send(write_caps(caps))
        self.listener.wait(0)
        self.listener.wait(0)

    def turn(self) -> Judgement | None:
        self.now_ns += SECOND
        return self.enforcer.turn()

    def told(self) -> list[Report]:
        self.agent.setblocking(False)
        return [read_report(message) for message in self._frames.cut(self.agent.recv(1 << 20))]


@pytest.fixture
def node(machine: Machine, tmp_path: Path) -> Iterator[Node]:
    said: list[str] = []
    listener = Listener(str(tmp_path / "memory-enforcer.sock"), read=read_caps, say=said.append)
    with socket.socket(socket.AF_UNIX) as agent:
        agent.connect(str(tmp_path / "memory-enforcer.sock"))
        listener.wait(0)
        yield Node(machine, listener, agent, said)
        listener.close()


def test_who_has_more_than_its_cap_is_ended_and_its_neighbour_is_not(node: Node, groups: Groups, pod: str) -> None:
    greedy = groups.start(groups.container(pod))
    other = "00000000-1111-4222-8333-444444444444"
    modest = groups.start(groups.container(other))
    node.machine.hold(greedy.pid, "GPU-a", 3000)
    node.machine.hold(modest.pid, "GPU-a", 3000)
    node.cap({(pod, "GPU-a"): 2048, (other, "GPU-a"): 4096})
    assert node.turn()
    assert greedy.poll() is None
    node.turn()
    assert greedy.wait(10) == -signal.SIGKILL
    first, second = node.told()
    assert (first.caps, first.done) == (2, ())
    (done,) = second.done
    assert (done.kill.pod_uid, done.kill.used_bytes, done.kill.cap_mib) == (pod, 3000 * MIB, 2048)
    assert ([victim.pid for victim in done.kill.victims], done.outcomes) == ([greedy.pid], ("ended",))
    assert node.said == [
        f"kill: pod {pod} has 3000 MiB of GPU-a, its cap is 2048 MiB: process {greedy.pid} (sleep): ended"
    ]
    node.machine.forget(greedy.pid)
    for _ in range(20):
        node.turn()
    assert modest.poll() is None


def test_without_caps_it_ends_nobody(node: Node, groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod))
    node.machine.hold(one.pid, "GPU-a", 79_999)
    for _ in range(10):
        node.turn()
    assert one.poll() is None
    assert [report.caps for report in node.told()] == [None] * 10


def test_a_dry_run_ends_nobody_and_says_what_it_would(node: Node, groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod))
    node.restart(Rules())
    node.cap({(pod, "GPU-a"): 2048})
    node.machine.hold(one.pid, "GPU-a", 3000)
    for _ in range(5):
        node.turn()
    assert one.poll() is None
    assert len(node.said) == 1
    assert node.said[0].endswith("dry run, would be ended")
    reports = node.told()
    assert all(report.is_dry for report in reports)
    told = [done for report in reports for done in report.done]
    assert [(done.kill.is_dry, done.outcomes) for done in told] == [(True, ())]


def test_processes_outside_of_pods_are_nobodys_whatever_they_hold(node: Node, groups: Groups, pod: str) -> None:
    host = groups.start(groups.container(pod).parents[2])
    node.cap({(pod, "GPU-a"): 1})
    node.machine.hold(host.pid, "GPU-a", 79_999)
    for _ in range(5):
        node.turn()
    assert host.poll() is None


def test_kills_wait_for_an_agent_that_comes_back(node: Node, groups: Groups, pod: str, tmp_path: Path) -> None:
    one = groups.start(groups.container(pod))
    node.cap({(pod, "GPU-a"): 2048})
    node.agent.close()
    node.listener.wait(0)
    node.machine.hold(one.pid, "GPU-a", 3000)
    node.turn()
    node.turn()
    node.machine.forget(one.pid)
    node.agent = socket.socket(socket.AF_UNIX)
    node.agent.connect(str(tmp_path / "memory-enforcer.sock"))
    node.listener.wait(0)
    node.turn()
    node.turn()
    first, second = node.told()
    assert [len(first.done), len(second.done)] == [1, 0]
    assert one.wait(10) == -signal.SIGKILL
    node.agent.close()


def test_a_driver_that_is_away_is_told_once_and_tried_again(node: Node) -> None:
    whole = node.machine.file.read_text()
    node.machine.file.unlink()
    assert [node.turn(), node.turn()] == [None, None]
    node.machine.file.write_text(whole)
    assert node.turn()
    assert node.said == ["driver: Driver Not Loaded; nobody is judged until it answers"]


def test_a_device_with_memory_that_is_not_told_is_told_once(node: Node) -> None:
    node.machine.hold(1, "GPU-b", "na")
    for _ in range(3):
        node.turn()
    assert node.said == ["device GPU-b: the driver does not tell the memory of a process; nobody there is judged"]
    assert [report.unjudged for report in node.told()] == [("GPU-b",)] * 3


@pytest.fixture
def container(tmp_path: Path, pod: str) -> Path:
    """The group of a container, in a tree of version 2."""
    made = tmp_path / "cgroup" / "kubepods" / f"pod{pod}" / ("ab" * 32)
    made.mkdir(parents=True)
    (tmp_path / "cgroup" / "cgroup.controllers").touch()
    return made


def test_a_cap_that_the_driver_holds_is_reported_and_its_count_decides(
    node: Node, groups: Groups, pod: str, container: Path
) -> None:
    """Processes seem to have more than the cap, contexts counted twice: the driver lets none have more."""
    one = groups.start(groups.container(pod))
    node.restart(Rules(dry_run=False), container.parents[2])
    node.cap({(pod, "GPU-a"): 2048})
    node.machine.more = [f"held GPU-a {container} 2048"]
    node.machine.hold(one.pid, "GPU-a", 3000)
    for _ in range(5):
        node.turn()
    assert one.poll() is None
    assert [report.driver for report in node.told()] == [Limited(((pod, "GPU-a"),))] * 5
    node.machine.more = [line for line in node.machine.file.read_text().splitlines() if line.startswith("limit ")]
    node.machine.more += [f"held GPU-a {container} 2999"]
    node.machine.write()
    node.turn()
    node.turn()
    assert one.wait(10) == -signal.SIGKILL
    (done,) = [done for report in node.told() for done in report.done]
    assert done.kill.used_bytes == 2999 * MIB


def test_a_driver_that_can_not_limit_is_told_once_and_over_use_is_ended(
    node: Node, groups: Groups, pod: str, container: Path
) -> None:
    one = groups.start(groups.container(pod))
    node.restart(Rules(dry_run=False), container.parents[2])
    node.cap({(pod, "GPU-a"): 2048})
    node.machine.more = ["fail nvmlDeviceGetMemoryLimits_v1 13"]
    node.machine.hold(one.pid, "GPU-a", 3000)
    node.turn()
    node.turn()
    assert one.wait(10) == -signal.SIGKILL
    why = "the driver can't limit memory of control groups; r615 and later can"
    assert [report.driver for report in node.told()] == [Limited((), why)] * 2
    assert [line for line in node.said if line.startswith("limits")] == [f"limits: {why}"]


def test_a_dry_run_ends_nobody_and_the_driver_limits_all_the_same(
    node: Node, groups: Groups, pod: str, container: Path
) -> None:
    one = groups.start(groups.container(pod))
    node.restart(Rules(), container.parents[2])
    node.cap({(pod, "GPU-a"): 2048})
    node.machine.hold(one.pid, "GPU-a", 2000)
    node.turn()
    (report,) = node.told()
    assert (report.is_dry, report.driver) == (True, Limited(((pod, "GPU-a"),)))


def test_without_its_switch_it_sets_no_limit(node: Node, pod: str) -> None:
    node.cap({(pod, "GPU-a"): 2048})
    node.turn()
    assert [report.driver for report in node.told()] == [None]
    assert "limit" not in node.machine.file.read_text()


SUSPECT = Judgement((), History(), suspects=frozenset({("pod", "GPU-a")}))


@pytest.mark.parametrize(
    ("judgement", "dry_run", "interval_ns", "next_ns"),
    [
        (None, False, SECOND, SECOND),
        (Judgement((), History()), False, SECOND, SECOND),
        (SUSPECT, False, SECOND, SECOND // 4),
        (SUSPECT, False, 10 * SECOND, 5 * SECOND // 2),
        (SUSPECT, False, SECOND // 4, SECOND // 4),
        (SUSPECT, True, SECOND, SECOND),
    ],
)
def test_it_looks_sooner_where_somebody_may_have_to_end(
    judgement: Judgement | None, dry_run: bool, interval_ns: int, next_ns: int
) -> None:
    rules = replace(Rules(), dry_run=dry_run)
    assert Pace(interval_ns=interval_ns).next_ns(judgement, rules) == next_ns


def _decided_after_ns(over_ns: int, interval_ns: int, rng: random.Random) -> int:
    """Time from the moment at which a pod passes its cap to the decision, where a look takes up to 50 ms."""
    rules, pace, history, now_ns = Rules(dry_run=False), Pace(interval_ns=interval_ns), History(), 0
    while True:
        used_mib = 3000 if now_ns >= over_ns else 1000
        one = Process(7, 1, used_mib * MIB, pod_uid="pod")
        sample = Sample(now_ns, (Device("GPU-a", 80_000 * MIB, used_mib * MIB, (one,)),))
        judgement = judge(sample, {("pod", "GPU-a"): 2048}, history, rules)
        if judgement.kills:
            return now_ns - over_ns
        history = judgement.history
        now_ns += pace.next_ns(judgement, rules) + rng.randrange(SECOND // 20)


@pytest.mark.thorough
@pytest.mark.parametrize(("interval_ns", "most_s"), [(SECOND // 4, 0.6), (SECOND, 1.35), (10 * SECOND, 12.6)])
def test_a_thousand_decisions_come_within_an_interval_and_a_quarter(interval_ns: int, most_s: float) -> None:
    """So within two seconds of over-use at the usual pace, whenever it begins."""
    rng = random.Random(11)
    after = [_decided_after_ns(rng.randrange(60 * SECOND), interval_ns, rng) for _ in range(1_000)]
    assert max(after) / SECOND <= most_s
    assert min(after) >= SECOND // 4


# Real processes: ended by pidfd, and only who was judged.
ID = "ab" * 32


def judged(pid: int) -> Process:
    known = Processes().known(pid)
    assert known is not None
    pod = known.seat.pod_uid if known.seat is not None else ""
    return Process(pid, known.started, 1, pod_uid=pod)


def test_who_was_judged_is_ended(groups: Groups, pod: str) -> None:
    one, other = groups.start(groups.container(pod)), groups.start(groups.container(pod))
    assert Ending(Processes()).end(judged(one.pid), 0) == ENDED
    assert one.wait(10) == -signal.SIGKILL
    assert other.poll() is None


def test_another_process_with_its_pid_is_left_alone(groups: Groups, pod: str) -> None:
    """As if the one that was judged had ended, and its PID was used again."""
    one = groups.start(groups.container(pod))
    earlier = replace(judged(one.pid), started=judged(one.pid).started - 1)
    assert Ending(Processes()).end(earlier, 0) == OTHER
    assert one.poll() is None


class TakenInBetween(Processes):
    """A PID that goes to another process between the pidfd and the second look."""

    @override
    def seen(self, pid: int) -> Seen | None:
        found = super().seen(pid)
        return None if found is None else Seen(found.started + 7, found.pod_uid)


def test_a_pid_that_is_used_anew_after_it_was_pinned_is_left_alone(groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod))
    assert Ending(TakenInBetween()).end(judged(one.pid), 0) == OTHER
    assert one.poll() is None


def test_what_the_pidfd_names_has_ended_whoever_has_the_pid(groups: Groups, pod: str) -> None:
    """The signal goes to the process that was pinned: here it ends between the second look and the signal."""
    one = groups.start(groups.container(pod))

    class EndsAfterTheLook(Processes):
        @override
        def seen(self, pid: int) -> Seen | None:
            found = super().seen(pid)
            one.kill()
            one.wait()
            return found

    assert Ending(EndsAfterTheLook()).end(judged(one.pid), 0) == GONE


def test_who_has_moved_to_another_group_of_its_pod_is_ended_all_the_same(groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod, ID))
    victim = judged(one.pid)
    (groups.container(pod, "elsewhere") / "cgroup.procs").write_text(str(one.pid))
    assert Ending(Processes()).end(victim, 0) == ENDED
    assert one.wait(10) == -signal.SIGKILL


def test_who_is_in_another_pod_by_now_is_left_alone(groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod))
    victim = judged(one.pid)
    other = "00000000-1111-4222-8333-444444444444"
    (groups.container(other) / "cgroup.procs").write_text(str(one.pid))
    assert Ending(Processes()).end(victim, 0) == OTHER
    assert one.poll() is None


def test_who_is_in_no_pod_is_left_alone() -> None:
    mine = judged(os.getpid())
    assert mine.pod_uid == ""
    assert Ending(Processes()).end(mine, 0) == OTHER


def test_who_has_ended_is_gone(groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod))
    victim = judged(one.pid)
    one.kill()
    one.wait()
    assert Ending(Processes()).end(victim, 0) == GONE
    # A PID that the kernel has not got at all.
    assert Ending(Processes()).end(Process(2**22 + 1, 1, 1, pod_uid=pod), 0) in {GONE, REFUSED}


def test_with_grace_it_is_asked_and_then_killed(groups: Groups, pod: str) -> None:
    deaf = groups.start(groups.container(pod), "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 1; done")
    willing = groups.start(groups.container(pod))
    ending = Ending(Processes(), grace_ns=5 * SECOND)
    while not _ignores_term(deaf):
        os.sched_yield()
    assert [ending.end(judged(one.pid), 0) for one in (deaf, willing)] == [ASKED, ASKED]
    assert willing.wait(10) == -signal.SIGTERM
    # Asked once: what it gets next is the end of its grace.
    assert ending.end(judged(deaf.pid), 1 * SECOND) == ASKED
    ending.press(5 * SECOND - 1)
    assert deaf.poll() is None
    ending.press(5 * SECOND)
    assert deaf.wait(10) == -signal.SIGKILL


def _ignores_term(process: subprocess.Popen[bytes]) -> bool:
    with open(f"/proc/{process.pid}/status") as status:  # noqa: PTH123 - a line of /proc
        ignored = next(line for line in status if line.startswith("SigIgn"))
    return bool(int(ignored.split()[1], 16) >> (signal.SIGTERM - 1) & 1)
