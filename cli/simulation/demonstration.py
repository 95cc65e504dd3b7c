"""``moorage demo``: the examples on a simulated cluster, with a live map of its GPUs.

The cluster lives in virtual time, which stands still while a picture is shown: each example has its time, and later
each picture that differs from the one before. Where nothing changes, and without a terminal, nobody waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskStatus
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from binder.settings import BinderSettings
from kube.client import errors
from runtime.text import BadInput
from simulator import manifests, outcome
from simulator.checks.violations import SOUND
from simulator.clock import VirtualClock, VirtualTimeLoop
from simulator.manifests import Manifest
from simulator.nodes import shape
from simulator.nodes.shape import KubeletSettings
from simulator.outcome import Outcome
from simulator.world import World, WorldSettings
from ui import outcomes
from ui.tables import Look, Sheet, drawn

NODES: Final = ("2x4x80GiB", "1x2x24GiB")
_STEP_S: Final = 0.7
_FRAMES_A_SECOND: Final = 8
_QUIET_S: Final = 1.5
_LIMIT_S: Final = 30.0
#: Faster than in earnest, so that the end of an idle reservation can be watched.
_SETTINGS: Final = WorldSettings(
    kubelet=KubeletSettings(sandbox_s=0.4, init_run_s=1.0),
    binder=BinderSettings(idle_s=1.0, sweep_s=0.5),
)


class Step(msgspec.Struct, frozen=True):
    """One example: its title (the first comment of its file) and its objects."""

    title: str
    objects: list[Manifest]


def run(
    folder: Path,
    *,
    seed: int,
    details: bool = False,
    console: Console | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> int:
    """Show the examples; return 0 if every invariant held, else 1. Raises BadInput.

    ``pause`` lets a picture stand for some seconds.
    """
    steps, console = _steps(folder), console or outcomes.console()
    settings = msgspec.structs.replace(_SETTINGS, seed=seed)
    result = anyio.run(_show, steps, settings, console, pause, backend_options={"loop_factory": VirtualTimeLoop})
    if isinstance(result, BadInput):
        raise result
    outcomes.show(result, console, details=details, is_wide=True)
    return 0 if result.all_held else 1


def _steps(folder: Path) -> list[Step]:
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise BadInput(f"{folder}: no *.yaml files; name a folder of manifests: --examples FOLDER")
    steps = []
    for path in files:
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].lstrip("# ")
        try:
            steps.append(Step(title, manifests.load(text, origin=str(path))))
        except manifests.MalformedManifest as error:
            raise BadInput(str(error)) from error
    return steps


async def _show(
    steps: Sequence[Step], settings: WorldSettings, console: Console, pause: Callable[[float], object]
) -> Outcome | BadInput:
    clock = VirtualClock(asyncio.get_running_loop())
    async with World(shape.parse(NODES), clock=clock, settings=settings) as world:
        stage = _Stage(world, console, pause)
        async with anyio.create_task_group() as group:
            await group.start(stage.run)
            for step in steps:
                stage.say(step.title)
                try:
                    await world.apply(step.objects)
                except errors.Refused as error:
                    # A value, because what is raised in here comes out wrapped by the task groups.
                    group.cancel_scope.cancel()
                    return BadInput(f"{'; '.join(error.__notes__)}: {error}")
                await anyio.sleep(_STEP_S)
            stage.is_watched = False
            stage.say("All are there; waiting until nothing changes any more")
            idle = await world.until_idle(quiet_s=_QUIET_S, waiting_quiet_s=_QUIET_S, limit_s=_LIMIT_S)
            pods, nodes, ended_at_s = outcome.pods(world), outcome.nodes(world), world.elapsed_s
            stage.is_resting = True
            if idle:
                await world.judge_rest()
            stage.is_resting = False
            stage.say("Deleting all pods: nothing may be left")
            await world.clear(quiet_s=_QUIET_S, limit_s=_LIMIT_S)
            group.cancel_scope.cancel()
        return Outcome(pods=pods, nodes=nodes, invariants=world.finish(), idle=idle, ended_at_s=ended_at_s)
    raise AssertionError("a world swallows no exception")


class _Stage:
    """Shows the world while it moves; without a terminal, only what happens next.

    ``is_watched``: every picture is shown for its time; else those that differ from the one before. ``is_resting``:
    nothing happens, so no picture is drawn.
    """

    def __init__(self, world: World, console: Console, pause: Callable[[float], object]) -> None:
        self._world = world
        self._console = console
        self._pause = pause
        self._now = Text("")
        self._shown: object = None
        self.is_watched = True
        self.is_resting = False

    def say(self, what: str) -> None:
        """Tell what happens now."""
        self._now = Text(what, style="bold")
        if not self._console.is_terminal:
            self._console.print(what)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Draw until cancelled."""
        if not self._console.is_terminal:
            task_status.started()
            return
        with Live(self._frame(), console=self._console, auto_refresh=False, transient=True) as live:
            task_status.started()
            while True:
                if self.is_resting:
                    await anyio.sleep(_STEP_S)
                    continue
                live.update(self._frame(), refresh=True)
                if self._is_new() or self.is_watched:
                    self._pause(1 / _FRAMES_A_SECOND)
                await anyio.sleep(1 / _FRAMES_A_SECOND)

    def _waiting(self, table: Sheet | None) -> list[str]:
        is_coloured = self._console.color_system is not None
        width = self._console.width
        return drawn([table], width, Look(is_wide=True), is_coloured=is_coloured) if table else []

    def _is_new(self) -> bool:
        before = self._shown
        self._shown = (self._now.plain, outcome.pods(self._world), outcome.nodes(self._world))
        return self._shown != before

    def _frame(self) -> RenderableType:
        pods = outcome.pods(self._world)
        running = sum(pod.phase == "Running" for pod in pods)
        broken = [name for name, result in self._world.checker.report.items() if result not in SOUND]
        state = Text(f"{self._world.elapsed_s:4.1f} s  {running} of {len(pods)} pods run  ", style="dim")
        state.append("every invariant holds" if not broken else f"broken: {', '.join(broken)}", style="dim")
        waiting = outcomes.waiting_table([pod for pod in pods if not pod.node])
        parts = [
            self._now,
            state,
            outcomes.gpu_map(outcome.nodes(self._world), width=self._console.width),
            *(Text.from_ansi(line) for line in self._waiting(waiting)),
        ]
        return Group(*parts)
