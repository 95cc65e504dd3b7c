"""Real processes: ended by pidfd, and only who was judged."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import replace

from typing_extensions import override

from nodeagent.core.enforcement.overuse import Process, Seen
from nodeagent.enforcement.memory_enforcer.loop import ASKED, ENDED, GONE, OTHER, REFUSED, Ending
from nodeagent.processes import Processes
from tests.nodeagent.groups import Groups

ID = "ab" * 32
SECOND = 10**9


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
