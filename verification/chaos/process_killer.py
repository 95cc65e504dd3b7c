"""Kills, stops and restarts programs of a cluster at random, and lets all of them run again in the end.

A program that ends on its own is started again, as kubelet would do it; how often that happened is reported.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from tools.cluster.deployment import NODES, Deployment
from tools.cluster.plane import ControlPlane
from verification.chaos import journal

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
#: Between two blows, in seconds.
_PAUSES_S: Final = (1.5, 5.0)
#: How long a program is away.
_AWAY_S: Final = (0.2, 4.0)
_STOPPED_S: Final = (0.5, 10.0)
_LOOK_S: Final = 0.5
_TRACE: Final = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Target:
    """One program and what can be done to it."""

    name: str
    kill: Callable[[], None]
    start: Callable[[], None]
    pause: Callable[[], None]
    go_on: Callable[[], None]


class Mischief:
    """Plays with the programs of a control plane and the components on it."""

    def __init__(self, plane: ControlPlane, moorage: Deployment, components: Sequence[str], rng: random.Random) -> None:
        self.kills: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        #: Programs that ended by themselves: a leader that lost its lease does, with 0.
        self.ended: Counter[str] = Counter()
        #: The ends of the logs of programs that ended any other way.
        self.last_words: list[str] = []
        #: Logs of components with an exception that nobody caught.
        self.traces: list[str] = []
        self._plane = plane
        self._moorage = moorage
        self._rng = rng
        self._busy: set[str] = set()
        self._targets = [self._program(name) for name in (ETCD, API_SERVER)]
        self._targets += [self._component(name) for name in components]

    async def run(self) -> None:
        """Strike at random until cancelled; each program that was struck works again before this returns."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(self._rng.uniform(*_PAUSES_S))
                free = [target for target in self._targets if target.name not in self._busy]
                if free:
                    tasks.start_soon(self._strike, self._rng.choice(free), self._rng.random() < 0.7)

    async def look_after(self) -> None:
        """Start again what ended on its own, until cancelled."""
        while True:
            await anyio.sleep(_LOOK_S)
            for target in self._targets:
                if target.name not in self._busy:
                    self._revive(target)

    def collect_traces(self) -> None:
        """Look through the logs of all components that run."""
        for name in self._moorage.running:
            self._trace(name)

    async def _strike(self, target: Target, is_kill: bool) -> None:
        self._busy.add(target.name)
        away_s = self._rng.uniform(*(_AWAY_S if is_kill else _STOPPED_S))
        (self.kills if is_kill else self.stops)[target.name] += 1
        (target.kill if is_kill else target.pause)()
        try:
            await anyio.sleep(away_s)
        finally:
            (target.start if is_kill else target.go_on)()
            self._busy.discard(target.name)

    def _revive(self, target: Target) -> None:
        children = [*self._plane.programs, *self._moorage.running.values()]
        child = next((child for child in children if child.name == target.name), None)
        if child is not None and child.process.poll() is not None:
            self.ended[child.name] += 1
            if child.process.returncode:
                self.last_words.append(f"{child.name} ended with {child.process.returncode}:\n{child.tail()}")
            target.kill()
            target.start()

    def _program(self, name: str) -> Target:
        plane = self._plane
        return Target(
            name,
            kill=lambda: plane.kill(name),
            start=lambda: plane.start_again(name),
            pause=lambda: plane.pause(name),
            go_on=lambda: plane.go_on(name),
        )

    def _component(self, name: str) -> Target:
        moorage = self._moorage
        return Target(
            name,
            kill=lambda: self._end(name),
            start=lambda: moorage.start(name),
            pause=lambda: moorage.pause(name),
            go_on=lambda: moorage.go_on(name),
        )

    def _end(self, name: str) -> None:
        self._moorage.kill(name)
        self._trace(name)
        if name.startswith(NODES):
            # The machines' own clock: it is the same in all processes.
            journal.close(self._moorage.records(name), self._checkpoints(name), at_s=time.monotonic())

    def _checkpoints(self, name: str) -> Path:
        return self._moorage.folder / name

    def _trace(self, name: str) -> None:
        before, found, after = self._moorage.log(name).partition(_TRACE)
        if found:
            self.traces.append(f"{name}: {before[-500:]}{found}{after[:3000]}")
