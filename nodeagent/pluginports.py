"""What a device plug-in needs of its surroundings: a driver, an observer, sources, paths and intervals.

The node agent passes in its own; tests pass in emulated ones.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from nodeagent import cdifiles
from nodeagent.core.card import Card
from nodeagent.core.health import Health, Look
from nodeagent.core.labels import Driver
from nodeagent.core.mistake import Mistake
from nodeagent.core.offering import Fault
from nodeagent.core.preferring import Place
from nodeagent.core.slice import Slice
from nodeagent.lifeofresource import Allocatable, Pace, Watcher


class Unreadable(Exception):
    """Raised by a Machine whose driver does not answer; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that the driver lists, and itself. ``looks`` are of GPUs and slices, ``places`` of GPUs, by UUID."""

    cards: Sequence[Card]
    slices: Sequence[Slice] = ()
    looks: Mapping[str, Look] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    driver: Driver = Driver()  # noqa: RUF009 - frozen


class Machine(Protocol):
    """The driver. Both calls block, and are made in one thread."""

    def read(self) -> Reading:
        """Look at all devices. Raises Unreadable."""
        ...

    def faults(self, within_s: float) -> Sequence[Fault]:
        """Wait for events for at most this time. Raises Unreadable."""
        ...


class Observer(Watcher, Protocol):
    """Hears what a node's administrator should know."""

    def refused(self, mistakes: Sequence[Mistake]) -> None:
        """Hear what is wrong with the file; nothing when it is served."""
        ...

    def noted(self, notes: Sequence[str]) -> None:
        """Hear which parts of the file have no effect on this node."""
        ...

    def health(self, states: Mapping[str, Health]) -> None:
        """Hear the health of all devices that are not, or lately were not, well."""
        ...

    def labelled(self, labels: Mapping[str, str]) -> None:
        """Hear all labels that the node is to have; none where the file says so."""
        ...

    def unreadable(self, why: str) -> None:
        """Hear that the driver does not answer; "" when it does."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Paths. ``plugins`` is kubelet's folder of sockets; ``state`` has to vanish with a reboot, as in /run."""

    plugins: Path
    state: Path
    cdi: Path = Path(cdifiles.FOLDER)
    root: Path = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Seconds between two looks at the file and at the devices; for how long one wait for events lasts.

    ``answer_s``: for how long the driver may keep us waiting. Where no persistence daemon runs, it takes a second or
    two a GPU.
    """

    file_s: float = 1.0
    look_s: float = 10.0
    wait_s: float = 1.0
    answer_s: float = 60.0
    life: Pace = field(default_factory=Pace)


class Slices:
    """MIG slices that stay as they are. nodeagent/carving.py has those that don't."""

    @property
    def withdrawn(self) -> frozenset[str]:
        """UUIDs that are not to be given to a pod."""
        return frozenset()

    @property
    def generation(self) -> int:
        """Another number after slices were made or destroyed."""
        return 0

    def taken(self, generation: int) -> None:
        """Hear that the driver was read since that generation, and its slices are listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is asked again and again. ``file``: the settings file, None for none, or why it can't be told.

    ``wanted``: UUIDs of GPUs that waiting reservations are opened for. ``cleared``: UUIDs that an administrator has
    called mended since the last call. ``slices``: what makes and destroys MIG slices.
    """

    file: Callable[[], Path | Mistake | None]
    allocatable: Allocatable
    wanted: Callable[[], Collection[str]] = tuple
    cleared: Callable[[], Collection[str]] = tuple
    slices: Slices = Slices()  # noqa: RUF009 - without state
