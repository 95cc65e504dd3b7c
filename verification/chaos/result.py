"""The result of a run of chaos, and its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from simulator.checks.violations import LIVENESS, SOUND

#: What can't be judged from outside of processes on a real clock (docs/design/invariants.md).
_TOLD: Final = tuple(f"S{number}" for number in range(1, 12))
_SHOWN: Final = (*_TOLD, *(name for name in LIVENESS if name in {"L2", "L3"}))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one run; times in seconds."""

    seed: int
    minutes: float
    wall_s: float
    kills: Mapping[str, int]
    stops: Mapping[str, int]
    mishaps: Mapping[str, int]
    pods_created: int
    gangs_created: int
    pods_run: int
    refused_by_kubelets: int
    versions_seen: int
    #: Pods that ran and were gone again while the observer had no API server: nobody judged them.
    unseen_pods: int
    #: From the last fault until all that fits ran, and from the deletion of all pods until nothing of ours was left.
    settled_s: float
    cleared_s: float
    #: What did not hold, in words.
    troubles: Sequence[str]
    invariants: Mapping[str, str]
    #: How often programs ended by themselves and were started again, and what those that failed said.
    ended: Mapping[str, int]
    last_words: Sequence[str]

    @property
    def is_sound(self) -> bool:
        """Whether everything held."""
        return not self.troubles and all(told in SOUND for told in self.invariants.values())

    def lines(self) -> Iterator[str]:
        """The report, for people."""
        yield f"{self.minutes:g} minutes of chaos, seed {self.seed} ({self.wall_s:.0f} s with start and end)"
        yield f"killed:    {_counted(self.kills)}"
        yield f"stopped:   {_counted(self.stops)}"
        yield f"ended:     {_counted(self.ended)} (by themselves: a leader that lost its lease does)"
        yield f"requests:  {_counted(self.mishaps)}"
        yield f"pods:      {self.pods_created} created ({self.gangs_created} gangs), {self.pods_run} ran, "
        yield f"           {self.refused_by_kubelets} refused by a kubelet, {self.unseen_pods} not judged"
        yield f"versions:  {self.versions_seen} of API objects were looked at"
        yield f"afterwards: all that fits ran within {self.settled_s:.1f} s;"
        yield f"           all pods deleted, nothing was left after {self.cleared_s:.1f} s"
        for name in _SHOWN:
            yield f"{name + ':':<11}{self.invariants[name]}"
        yield from self.last_words
        for trouble in self.troubles:
            yield f"NOT SOUND: {trouble}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"
