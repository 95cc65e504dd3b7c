"""Real commands that start, end and are killed: no GPU is given beyond what it has, and nothing is lost.

What runs is counted here by what each command was answered, not by books.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpu.share import NANO_PER_DEVICE
from tests.cli.machine.launcher import CARDS, ROOT

WHOLE = NANO_PER_DEVICE


class Commands:
    """A launcher of commands, and what runs by its answers."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "tests.cli.machine.launcher", str(folder)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.used: dict[str, dict[int, int]] = {}
        self._ended: set[str] = set()

    def say(self, line: str) -> None:
        """Send a line. A command that is to end may end, and another one start, before we read of it."""
        does, _, name = line.partition(" ")
        if does == "start":
            self._ended.discard(name.partition(" ")[0])
        elif does == "end":
            self._ended.add(name)
            self.used.pop(name, None)
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """The next answer, after which no GPU is used beyond what it has."""
        assert self._process.stdout is not None
        name, _, told = self._process.stdout.readline().rstrip("\n").partition(" ")
        if name not in self._ended and told not in {"refused", "killed", "waits"}:
            self.used[name] = {int(gpu): int(nano) for gpu, nano in (each.split(":") for each in told.split(","))}
        assert all(nano <= WHOLE for nano in self.taken().values()), self.used
        return f"{name} {told}"

    def result(self) -> str:
        """The next answer, but for those that say that a command waits."""
        while (answer := self.answer()).endswith(" waits"):
            pass
        return answer

    def ask(self, line: str) -> str:
        self.say(line)
        return self.answer()

    def taken(self) -> Counter[int]:
        taken: Counter[int] = Counter()
        for gpus in self.used.values():
            taken.update(gpus)
        return taken

    def listed(self) -> Any:
        """What ``--list -o json`` prints."""
        assert self._process.stdout is not None
        self.say("list")
        lines = list(iter(self._process.stdout.readline, "\n"))
        return json.loads("".join(lines))

    def stop(self) -> None:
        self._process.communicate(timeout=120)
        assert self._process.returncode == 0


@pytest.fixture
def commands(tmp_path: Path) -> Iterator[Commands]:
    started = Commands(tmp_path)
    yield started
    started.stop()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.sampled_from(["0.1", "0.25", "0.5", "0.7", "0.999999999", "1", "2", "1-3"])),
        st.tuples(st.sampled_from(["kill", "end"]), st.integers(0, 20)),
    ),
    max_size=25,
)


@pytest.mark.thorough
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_starts_ends_and_is_killed(commands: Commands, steps: list[tuple[str, Any]]) -> None:
    """A killed command whose child runs on keeps its share; when all have ended, all is free again."""
    for name in list(commands.used):
        commands.ask(f"end {name}")
    for number, (does, what) in enumerate(steps):
        if does == "start":
            free = [WHOLE - commands.taken()[gpu] for gpu in range(CARDS)]
            answer = commands.ask(f"start c{number} {what} 0")
            assert answer.endswith("refused") is not _fits(what, free), (what, free)
        elif commands.used:
            name = list(commands.used)[what % len(commands.used)]
            commands.ask(f"{does} {name}")
    assert [gpu["freeNano"] for gpu in commands.listed()] == [WHOLE - commands.taken()[gpu] for gpu in range(CARDS)]


def _fits(gpus: str, free: list[int]) -> bool:
    need = "1" if "-" in gpus else gpus
    if "." not in need:
        return free.count(WHOLE) >= int(need)
    return max(free) >= round(float(need) * WHOLE)


@pytest.mark.thorough
def test_a_hundred_that_race_are_given_no_more_than_there_is(commands: Commands) -> None:
    """Each fits as long as anything is free, so in the end nothing is."""
    for number in range(100):
        commands.say(f"start c{number} {('0.25', '0.5', '0.1')[number % 3]} 0")
    answers = [commands.answer() for _ in range(100)]
    assert 8 <= len(commands.used) == sum(not each.endswith("refused") for each in answers)
    assert all(WHOLE - nano < 100_000_000 for nano in commands.taken().values())
    assert len(commands.taken()) == CARDS


@pytest.mark.thorough
def test_a_hundred_that_race_and_wait_all_get_their_turn(commands: Commands) -> None:
    for number in range(100):
        commands.say(f"start c{number} 0.5 60")
    started = 0
    while started < 100:
        assert not commands.answer().endswith("refused")
        if len(commands.used) == 2 * CARDS or started + len(commands.used) == 100:
            started += len(commands.used)
            for name in list(commands.used):
                commands.say(f"end {name}")


@pytest.mark.thorough
def test_commands_that_are_killed_while_they_start_leave_nothing_behind(commands: Commands) -> None:
    """In the queue, between two books, before an exec: wherever it hits them."""
    for number in range(60):
        commands.say(f"start c{number} {('3', '2', '0.5')[number % 3]} 60")
        if number % 4:
            commands.say(f"end c{number - 1}")
    for number in range(60):
        if number % 4 == 3:
            commands.say(f"end c{number}")
    commands.say("start all 4 60")
    while not (answer := commands.answer()).startswith("all 0:"):
        assert not answer.endswith("refused")
    assert [gpu["freeNano"] for gpu in commands.listed()] == [0] * CARDS


def test_first_come_first_served(commands: Commands) -> None:
    """A small one behind a large one waits, though it would fit: or the large one might wait for ever."""
    commands.ask("start first 0.5 0")
    assert commands.ask("start large 4 60") == "large waits"
    assert commands.ask("start impatient 0.1 0") == "impatient refused"
    commands.say("start small 0.1 60")
    assert commands.ask("blocked small") == "small waits"
    commands.say("end first")
    assert commands.result() == "first ended"
    assert commands.result() == f"large {','.join(f'{gpu}:{WHOLE}' for gpu in range(CARDS))}"
    commands.say("end large")
    answers = [commands.result(), commands.result()]
    assert "large ended" in answers
    assert any(each.startswith("small ") and each.endswith(":100000000") for each in answers)


def test_the_next_one_goes_on_when_the_first_in_the_queue_is_killed(commands: Commands) -> None:
    commands.ask("start first 0.5 0")
    assert commands.ask("start large 4 60") == "large waits"
    commands.say("start small 0.1 60")
    assert commands.ask("blocked small") == "small waits"
    commands.say("end large")
    answers = [commands.result(), commands.result()]
    assert "large ended" in answers
    assert any(each.startswith("small ") and each.endswith(":100000000") for each in answers)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start commands of several users")
def test_users_who_may_write_the_folder_share_it() -> None:
    """Whatever their umask. A user who may not write it is refused, and takes nothing."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o2777)
    started = Commands(folder)
    try:
        assert started.ask("start ada 0.5 0 1001") == "ada 0:500000000"
        assert started.ask("start bob 0.4 0 1002") == "bob 0:400000000"
        started.ask("kill ada")
        started.ask("end ada")
        assert started.ask("start root 0.6 0") == "root 0:600000000"
        assert started.ask("start eve 1-4 0 1003") == "eve 1:1000000000,2:1000000000,3:1000000000"
        assert [gpu["freeNano"] for gpu in started.listed()] == [0, 0, 0, 0]
        started.ask("end eve")
        folder.chmod(0o755)
        assert started.ask("start mallory 0.1 0 1004") == "mallory refused"
    finally:
        started.stop()
        shutil.rmtree(folder)
