"""Many seeds on several processes: what is run, told, and written down."""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import TaskStatus
from rich.console import Console
from typing_extensions import override

from kube.client.api import Api
from kube.client.transport import Response
from simulator.apiserver.transport import MemoryTransport
from simulator.components import Parts
from verification.hostile.actions import CreatePod
from verification.hostile.run import CRASH, EDGE, HANG, run
from verification.hostile.scenario import MalformedScript, Scenario, Script, decode, encode, scenario_of
from verification.hostile.soak import Soak, main

pytestmark = pytest.mark.thorough


def made(keep: Path, *, until_s: float | None = None) -> tuple[Soak, io.StringIO]:
    told = io.StringIO()
    console = Console(file=told, width=200)
    return Soak(kinds=("crash",), keep=keep, until_s=until_s, workers=1, console=console), told


def test_every_seed_is_run_once_and_counted_with_its_faults(tmp_path: Path) -> None:
    running, told = made(tmp_path)
    tally = running.go(range(1, 4))
    assert tally.runs == 3
    assert tally.failures == []
    assert tally.faults.total() == sum(len(scenario_of(seed, ("crash",)).faults) for seed in (1, 2, 3))
    assert "seeds 1-3: all done" in told.getvalue()
    assert list(tmp_path.iterdir()) == []


def test_no_seed_is_begun_when_the_time_is_over(tmp_path: Path) -> None:
    running, told = made(tmp_path, until_s=time.monotonic())
    assert running.go(range(1, 4)).runs == 0
    assert "seeds 1-3: none done" in told.getvalue()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--seeds", "x"], "'x'; allowed: one seed as in 7"),
        (["--seeds", "1-x"], "'1-x'; allowed: one seed as in 7"),
        (["--seeds", "1", "--faults", "crash,flood"], "'flood'; allowed: none, admission-down"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert told in capsys.readouterr().err.replace("\n", " ")


# Running a scenario: what it tells of runs that end badly, or never.

HALF = {"gpu-fraction": "0.5"}
TWO = Scenario(
    seed=1,
    shapes=("1x1x24GiB",),
    actions=tuple(CreatePod(at_s=0.0, name=f"p-{i}", annotations=HALF) for i in range(2)),
    calm_s=1.0,
)


def test_a_run_without_trouble_holds() -> None:
    outcome = run(TWO)
    assert outcome.violations == ()
    assert outcome.events == ()
    assert outcome.pods == 3  # with their reservation
    assert outcome.digest == run(TWO).digest


@pytest.mark.parametrize(("until", "pods"), [("", 3), ("S2", 3), ("S1", 0)])
def test_a_run_breaks_off_when_the_invariant_is_broken_that_it_was_to_run_until(until: str, pods: int) -> None:
    outcome = run(TWO, show=lambda world: world.checker.findings.add("S1", 0.0, "of the test"), until=until)
    assert outcome.broken == {"S1"}
    assert outcome.pods == pods


def test_a_scenario_is_the_same_when_it_was_written_and_read() -> None:
    script = Script(violates="S1", story="why", scenario=scenario_of(4))
    assert decode(encode(script)) == script
    assert run(decode(encode(script)).scenario).digest == run(scenario_of(4)).digest


def test_what_was_read_is_written_in_the_same_bytes() -> None:
    """4 and 4.0 are equal here, and other bytes for the API server."""
    for seed in range(100):
        text = encode(Script(violates="S1", story="why", scenario=scenario_of(seed)))
        assert encode(decode(text)) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{}", "missing required field"),
        (b'{"violates":"S1","scenario":{"version":99,"seed":1,"shapes":[],"calm_s":1}}', "99; this code reads 1"),
        (b'{"violates":"S1","scenario":{"seed":1,"shapes":[],"calm_s":1,"speed":2}}', "unknown field `speed`"),
    ],
)
def test_what_is_no_script_is_refused(text: bytes, told: str) -> None:
    with pytest.raises(MalformedScript, match=told):
        decode(text)


class Broken:
    """A binder that starts, and then does ``what``."""

    def __init__(self, api: Api, **_: Any) -> None:
        del api

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep(1)
        raise LookupError("what nobody thought of")


class Spinning(Broken):
    @override
    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        while True:
            await anyio.lowlevel.checkpoint()


class Looping(Broken):
    @override
    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep(1)
        while True:
            pass


class Deaf(Broken):
    @override
    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await anyio.sleep_forever()


@pytest.mark.parametrize(
    ("binder", "found", "told"),
    [
        (Broken, CRASH, "LookupError: what nobody thought of at "),
        (Spinning, HANG, "1 s of processor time in one virtual second, at "),
        (Looping, HANG, "1 s of processor time in one virtual second, at "),
        (Deaf, HANG, "not at rest 3600 s after the last fault: a pod neither runs nor says why it waits"),
    ],
)
def test_a_run_that_breaks_off_or_does_not_end_says_so(binder: Any, found: str, told: str) -> None:
    outcome = run(TWO, parts=Parts(binder=binder), limit_cpu_s=20.0 if binder is Deaf else 1.0)
    texts = [violation.text for violation in outcome.violations if violation.invariant == found]
    assert told in texts[0]
    assert outcome.events


class Clumsy:
    """A binder's connection on which deletions raise what nobody expects."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport

    async def request(self, method: str, path: str, **rest: Any) -> Response:
        if method == "DELETE":
            raise ZeroDivisionError("what nobody thought of")
        return await self._transport.request(method, path, **rest)

    def stream(self, path: str, **rest: Any) -> Any:
        return self._transport.stream(path, **rest)


def test_an_exception_that_was_caught_at_the_edge_is_found() -> None:
    outcome = run(TWO, parts=Parts(wire=lambda user, wire: Clumsy(wire) if user.startswith("binder") else wire))
    texts = [violation.text for violation in outcome.violations if violation.invariant == EDGE]
    assert "ZeroDivisionError: what nobody thought of at " in texts[0]
