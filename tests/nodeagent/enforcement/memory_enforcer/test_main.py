"""The memory enforcer's own process, over the driver's stub, with real processes to end."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
import uuid

import pytest

from nodeagent.core.enforcement.messages import Done, Frames, Limited, write_caps
from nodeagent.core.enforcement.overuse import MIB
from tests.nodeagent.enforcement.memory_enforcer.conftest import ROOT, Machine, Run
from tests.nodeagent.groups import Groups

pytestmark = pytest.mark.thorough

#: From the moment at which the driver tells of over-use to the end of the process, where the interval is 1 s.
MOST_S = 2.0


def ended_within_s(processes: list[subprocess.Popen[bytes]], since: float) -> list[float]:
    """When each one ended, seconds after ``since``; fails after ten."""
    found: dict[int, float] = {}
    while len(found) < len(processes):
        assert time.monotonic() - since < 10
        for one in processes:
            if one.pid not in found and one.poll() is not None:
                found[one.pid] = time.monotonic() - since
                assert one.returncode == -signal.SIGKILL
        time.sleep(0.002)
    return sorted(found.values())


def test_over_use_is_ended_within_two_seconds_and_nobody_else_is(run: Run, machine: Machine, groups: Groups) -> None:
    """60 processes of 60 pods in ten rounds that begin at any moment of an interval; 20 neighbours stay."""
    rng, pods = random.Random(5), [str(uuid.uuid4()) for _ in range(80)]
    machine.cards = {"GPU-a": 1_000_000, "GPU-b": 1_000_000}
    started = {each: groups.start(groups.container(each)) for each in pods}
    card = {each: rng.choice(["GPU-a", "GPU-b"]) for each in pods}
    for each in pods:
        machine.hold(started[each].pid, card[each], 1000)
    run.start("--dry-run", "false")
    run.cap({(each, card[each]): 1024 for each in pods})
    found: list[float] = []
    for number in range(10):
        greedy = pods[number * 6 : number * 6 + 6]
        run.report()
        time.sleep(rng.random())
        machine.processes = [line for line in machine.processes if int(line.split()[1]) not in _pids(started, greedy)]
        machine.processes += [f"proc {started[each].pid} {card[each]} 3000 5" for each in greedy]
        since = time.monotonic()
        machine.write()
        found += ended_within_s([started[each] for each in greedy], since)
        machine.processes = [line for line in machine.processes if int(line.split()[1]) not in _pids(started, greedy)]
        machine.write()
    print(f"ended within {max(found):.2f} s at most, {sorted(found)[30]:.2f} s in the median")
    assert len(found) == 60
    assert max(found) <= MOST_S, found
    assert all(started[each].poll() is None for each in pods[60:])
    assert run.stop() == 0


def _pids(started: dict[str, subprocess.Popen[bytes]], pods: list[str]) -> set[int]:
    return {started[each].pid for each in pods}


def test_a_fork_bomb_is_ended_whole_by_the_third_kill(run: Run, machine: Machine, groups: Groups, pod: str) -> None:
    """Each process that is ended has another at once, until all of them are ended in one look."""
    group = groups.container(pod)
    bomb = [groups.start(group) for _ in range(40)]
    neighbour = groups.start(groups.container(str(uuid.uuid4())))
    for one in bomb:
        machine.hold(one.pid, "GPU-a", 500)
    machine.hold(neighbour.pid, "GPU-a", 9000)
    run.start("--dry-run", "false", "--interval-s", "0.25")
    run.agent.sendall(write_caps({(pod, "GPU-a"): 1024}))
    kills: list[Done] = []
    while len(kills) < 3:
        for done in run.report().done:
            kills.append(done)
            if len(kills) < 3:
                bomb.append(groups.start(group))
                machine.hold(bomb[-1].pid, "GPU-a", 500)
    assert [kill.kill.action.value for kill in kills] == ["largest", "largest", "all"]
    # One that has begun since the last look is ended in the next ones.
    ended_within_s(bomb, time.monotonic())
    assert neighbour.poll() is None
    assert run.stop() == 0


def test_a_process_that_moves_to_another_group_of_its_pod_has_the_limit_there_at_once(
    run: Run, machine: Machine, unified_groups: Groups, pod: str
) -> None:
    """Groups of the kernel, and a container that has the right to make others beside its own, as a privileged one."""
    container = unified_groups.container(pod)
    beside = unified_groups.container(pod, "away from here")
    beside.rmdir()
    run.start("--driver-limits", "true", "--control-groups", str(unified_groups.mounted), "--interval-s", "0.25")
    run.cap({(pod, "GPU-a"): 1024})
    assert run.report().driver == Limited(((pod, "GPU-a"),))
    # Limits of the groups above are lost meanwhile: what the other group has is its own.
    machine.write()
    moves = f'mkdir "{beside}" && echo $$ > "{beside}/cgroup.procs" && echo moved && exec sleep 600'
    shell = ["/bin/sh", "-c", f"echo $$ > {container}/cgroup.procs && {moves}"]
    process = subprocess.Popen(shell, stdout=subprocess.PIPE)
    unified_groups.started.append(process)
    with process.stdout or pytest.fail("it has an output") as output:
        assert output.readline() == b"moved\n"
    # The look that was under way, and the next one.
    reports = [run.report() for _ in range(2)]
    assert reports[-1].driver == Limited(((pod, "GPU-a"),))
    assert f"/away\\040from\\040here 0 {1024 * MIB}\n" in machine.file.read_text()
    assert run.stop() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--interval-s", "0.2"], "0.25 to 10 seconds are allowed"),
        (["--interval-s", "11"], "0.25 to 10 seconds are allowed"),
        (["--interval-s", "nan"], "0.25 to 10 seconds are allowed"),
        (["--interval-s", "1e999999999"], "0.25 to 10 seconds are allowed"),
        (["--grace-s", "61"], "0 to 60 seconds are allowed"),
        (["--tolerance-mib", "-1"], "0 to 65536 MiB are allowed"),
        (["--tolerance-mib", "65537"], "0 to 65536 MiB are allowed"),
        (["--dry-run", "maybe"], "true, false"),
        (["--driver-limits", "maybe"], "true, false"),
        (["--control-groups", "cgroup"], "a path from / on"),
        (["--socket", "/proc/no/memory-enforcer.sock"], "name a file in a folder that can be written"),
    ],
)
def test_what_can_not_be_is_refused_with_what_can(run: Run, options: list[str], said: str) -> None:
    command = [sys.executable, "-m", "nodeagent.enforcement.memory_enforcer.main", "--socket", str(run.path), *options]
    ended = subprocess.run(command, cwd=ROOT, env=run.environ, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode in {1, 2}
    assert said in ended.stderr.replace("'", "")


def test_a_restart_knows_no_caps_until_it_is_told(run: Run, machine: Machine, groups: Groups, pod: str) -> None:
    one = groups.start(groups.container(pod))
    run.start("--dry-run", "false", "--interval-s", "0.25")
    run.cap({(pod, "GPU-a"): 1024})
    assert run.stop() == 0
    machine.hold(one.pid, "GPU-a", 3000)
    run.frames = Frames()
    run.start("--dry-run", "false", "--interval-s", "0.25")
    assert [run.report().caps for _ in range(5)] == [None] * 5
    assert one.poll() is None
    run.agent.sendall(write_caps({(pod, "GPU-a"): 1024}))
    ended_within_s([one], time.monotonic())
    assert run.stop() == 0
