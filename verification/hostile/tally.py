"""What a soak did, in numbers: runs, seeds, simulated time, faults by kind, and what did not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from verification.hostile.marks import MARKS, WITH_CLAIMS, missing
from verification.hostile.roommade import RoomMade


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed found: the first violation in the shortened log, and the ids of all."""

    seed: int
    invariants: tuple[str, ...]
    text: str
    events: tuple[str, ...]


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one seed. ``cpu_s``: processor time of the run; ``faults``: the kind of each in its scenario.

    ``marks``: the states of the protocol that it came to (verification/hostile/marks.py).
    """

    seed: int
    writes: int
    pods: int
    virtual_s: float
    cpu_s: float
    faults: tuple[str, ...]
    marks: tuple[str, ...]
    failure: Failure | None
    room: RoomMade = RoomMade()


@dataclass(slots=True)
class Tally:
    """Adds up the runs of one soak over ``seeds``, in whichever order they end."""

    seeds: Sequence[int]
    writes: int = 0
    pods: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    with_claims: Counter[str] = field(default_factory=Counter)
    #: What room was made, by field of ``RoomMade``, and in how many runs.
    room: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    _done: set[int] = field(default_factory=set)

    @property
    def runs(self) -> int:
        """How many seeds are done."""
        return len(self._done)

    def take(self, judged: Judged) -> None:
        """Count a run."""
        self._done.add(judged.seed)
        self.writes += judged.writes
        self.pods += judged.pods
        self.virtual_s += judged.virtual_s
        self.cpu_s += judged.cpu_s
        self.faults.update(judged.faults)
        self.marks.update(mark for mark in judged.marks if mark in MARKS)
        self.with_claims.update(mark for mark in judged.marks if mark in WITH_CLAIMS)
        self.room.update(msgspec.structs.asdict(judged.room))
        self.room["runs"] += judged.room.intents > 0
        if judged.failure is not None:
            self.failures.append(judged.failure)

    def lines(self, took_s: float) -> Iterator[str]:
        """Tell people of all of it."""
        pace = self.runs / max(took_s, 1e-9)
        yield f"{self.runs:,} runs in {took_s:.0f} s ({pace:.1f}/s, {self.cpu_s:,.0f} s of processor time)"
        yield self._told_seeds()
        yield f"simulated: {self.virtual_s / 3600:,.1f} hours, {self.pods:,} pods at rest, {self.writes:,} writes"
        kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.faults.items()))
        yield f"faults injected: {self.faults.total():,}" + (f" ({kinds})" if kinds else "")
        yield from self._told_room()
        yield from self._told_marks()
        found = Counter(invariant for failure in self.failures for invariant in failure.invariants)
        broken = ", ".join(f"{invariant} {count}" for invariant, count in sorted(found.items()))
        yield f"failed: {len(self.failures):,} of {self.runs:,}: {broken}" if broken else "every invariant held"

    def _told_room(self) -> Iterator[str]:
        """How much room was made for pods: runs without it test nothing of that."""
        room = self.room
        if room["runs"]:
            intents = f"{room['intents']:,} intents, {room['served']:,} served, {room['revised']:,} revised"
            evictions = f"{room['evictions']:,} evictions, {room['refused']:,} refused"
            yield f"room made in {room['runs']:,} runs: {intents}; {evictions}"

    def _told_marks(self) -> Iterator[str]:
        """Which states of the protocol were reached in the fewest runs, and which never: they were not tested."""
        rarest = sorted(self.marks.items(), key=lambda item: (item[1], item[0]))[:3]
        told = ", ".join(f"{mark!r} in {count:,}" for mark, count in rarest)
        yield f"states reached: {len(self.marks)} of {len(MARKS)}" + (f" (the fewest runs: {told})" if told else "")
        if reached := [f"{mark} {self.marks[mark]:,}" for mark in MARKS if self.marks[mark]]:
            yield f"runs that reached each: {', '.join(reached)}"
        if never := missing(self.marks):
            yield f"never reached: {', '.join(never)}"
        if made := self.with_claims:
            told = ", ".join(f"{mark!r} in {made[mark]:,}" for mark in WITH_CLAIMS)
            yield f"claims that the scheduler made, runs: {told}"

    def _told_seeds(self) -> str:
        """Which seeds are done: up to the first that is not, and how many beyond it."""
        asked = _span(self.seeds[0], self.seeds[-1]) if self.seeds else "none"
        if self.runs == len(self.seeds):
            return f"seeds {asked}: all done"
        through = next(at for at, seed in enumerate(self.seeds) if seed not in self._done)
        if not self.runs:
            return f"seeds {asked}: none done"
        beyond = f" and {self.runs - through} beyond" if self.runs > through else ""
        done = _span(self.seeds[0], self.seeds[through - 1]) if through else "none in a row"
        return f"seeds {asked}: {done} done{beyond}, not all"


def _span(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"
