"""L3 of suggested changes: a change that a pod's condition names helps, or did so not longer ago than the text says.

At random moments, and after each long pause, the changes that are shown are tried on a cluster made of the stored
objects (reference.py). For one that does not help the cluster is taken back change by change: the sentence is true if
the change helped at any moment within the time that the text states and the time that a write may take, or since it was
shown. Nobody waits for anything here and nothing is written, so a run is what it is without this.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import anyio
import msgspec

from kube.client.clock import Clock
from kube.client.resources import PODS
from scheduler.app import Scheduler
from scheduler.core.model.settings import Settings
from simulator.apiserver.types import ResourceType
from verification.hostile.faults import components
from verification.hostile.suggested.reference import (
    Change,
    Claim,
    History,
    Key,
    Past,
    Reference,
    Sentence,
    Unreadable,
    WaitUntil,
    is_decided_by,
    sentence_of,
)
from wire import names
from wire.units import SECOND_NS

if TYPE_CHECKING:
    from simulator.world import World
    from verification.hostile.scenario import Scenario

#: One look in 50 changes on average, and none within this time after the last one.
_ONE_IN: Final = 50
_LOOK_S: Final = 15.0
#: After a pause of this length the next change is looked at before it counts.
_PAUSE_S: Final = 240.0
#: A sentence is tried, and then written with what waits to be written: so late, and twice the pace of conditions.
_WRITING_S: Final = 60.0
#: The longest time that a text may state.
_LONGEST_S: Final = 600.0
#: How a look at text begins.
_SAYS: Final = b"lets it start (tried"


class _Shown(msgspec.Struct, frozen=True):
    """What a pod shows, and since when (event loop's time)."""

    uid: str
    group: str
    message: str
    sentence: Sentence
    since_s: float


@dataclass(slots=True)
class Suggested:
    """Judges one run. ``judged``: changes that were tried; ``past``: of them those that no longer helped, but had."""

    scenario: Scenario
    judged: int = 0
    past: int = 0
    _world: World | None = None
    _clock: Clock | None = None
    _history: History = field(init=False)
    _rng: random.Random = field(init=False)
    _shown: dict[Key, _Shown] = field(default_factory=dict)
    _looked_at_s: float = float("-inf")
    _changed_at_s: float = float("inf")

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.scenario.seed}/suggested")
        self._history = History(_LONGEST_S + self._late_s + self.scenario.calm_s)

    @property
    def _late_s(self) -> float:
        """How late a sentence may be taken back where nothing is wrong."""
        return _WRITING_S + 4 * self.scenario.world.scheduler.condition_s

    def attend(self, world: World, clock: Clock) -> None:
        """Watch a cluster that is ready, if its schedulers suggest anything. ``clock``: the cluster's wall clock."""
        if world.settings.scheduler.suggestions:
            self._world, self._clock = world, clock
            world.server.listen(self.stored)

    def stored(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if not is_decided_by(kind):
            return
        now_s = anyio.current_time()
        if self._shown and now_s - self._changed_at_s >= _PAUSE_S:
            self._look(now_s)
        change = self._history.take(kind, raw, is_gone=is_gone, at_s=now_s)
        self._changed_at_s = now_s
        if kind.plural == PODS.plural:
            self._note(change)
        is_due = bool(self._shown) and now_s - self._looked_at_s >= _LOOK_S
        if is_due and self._rng.randrange(_ONE_IN) == 0:
            self._look(now_s)

    def _note(self, change: Change) -> None:
        """Note what a pod shows now."""
        known = self._shown.pop(change.key, None)
        if change.after is None or _SAYS not in change.after:
            return
        pod: dict[str, Any] = msgspec.json.decode(change.after)
        message, uid = _message(pod), pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
            return
        try:
            sentence = sentence_of(message)
        except Unreadable as error:
            self._found(
                change.at_s, f"pod {change.key.namespace}/{change.key.name} suggests {error}, which is no change"
            )
            return
        if sentence is not None:
            is_same = known is not None and (known.uid, known.sentence) == (uid, sentence)
            since_s = known.since_s if known is not None and is_same else change.at_s
            group = (pod["metadata"].get("annotations") or {}).get(names.POD_GROUP_NAME, "")
            self._shown[change.key] = _Shown(uid, group, message, sentence, since_s)

    # --- judging -----------------------------------------------------------------------------------------------------
    def _look(self, now_s: float) -> None:
        """Judge all that is shown, each change of a group once."""
        self._looked_at_s = now_s
        for settings in self._deciding():
            reference = Reference(settings, self._history.objects)
            shown = [(key, each) for key, each in self._shown.items() if reference.is_about(each.uid)]
            claims = {
                (key.namespace, each.group or each.uid, change): (key, each)
                for key, each in shown
                for change in each.sentence.changes
                if not (isinstance(change, WaitUntil) and self._do_clocks_jump())
            }
            for (_, _, change), (key, each) in claims.items():
                self.judged += 1
                claim = Claim(each.uid, change)
                if not reference.helps(claim, self._wall_s(now_s)):
                    self._judge(settings, key, claim, now_s)

    def _deciding(self) -> Iterator[Settings]:
        """Settings of the schedulers that run, once for each node pool."""
        running = [] if self._world is None else self._world.running.values()
        found = (each.cache.cluster.settings for each in running if isinstance(each, Scheduler))
        yield from {settings.pool: settings for settings in found}.values()

    def _do_clocks_jump(self) -> bool:
        return any(type(fault).__module__ == components.__name__ for fault in self.scenario.faults)

    def _judge(self, settings: Settings, key: Key, claim: Claim, now_s: float) -> None:
        """Judge a change that does not help now."""
        shown = self._shown[key]
        earliest_s = self._earliest_s(shown, now_s)
        past = Past(Reference(settings, self._history.objects), self._history.changes, self._wall_s)
        if past.has_helped(claim, earliest_s=earliest_s, now_s=now_s):
            self.past += 1
            return
        name, ago = f"pod {key.namespace}/{key.name}", f"{now_s - earliest_s:.0f} s"
        text = (
            f"{name} says {shown.message!r} for {now_s - shown.since_s:.0f} s: {claim.change} has not helped for {ago}"
        )
        self._found(now_s, text)

    def _earliest_s(self, shown: _Shown, now_s: float) -> float:
        """From when on a change that is shown has to have helped once. Under faults a sentence may be late by all."""
        earliest_s = max(shown.since_s, now_s - shown.sentence.renewed_s) - self._late_s
        calm_s = self._start_s + self.scenario.calm_s
        return earliest_s - self.scenario.calm_s if self.scenario.faults and earliest_s < calm_s else earliest_s

    # --- times and findings ------------------------------------------------------------------------------------------
    @property
    def _start_s(self) -> float:
        return 0.0 if self._world is None else self._world.checker.findings.start_s

    def _wall_s(self, at_s: float) -> int:
        """The wall clock's second at a time of the event loop."""
        now_ns = 0 if self._clock is None else self._clock.now_ns()
        return (now_ns - round((anyio.current_time() - at_s) * SECOND_NS)) // SECOND_NS

    def _found(self, at_s: float, text: str) -> None:
        if self._world is not None:
            self._world.checker.findings.add("L3", at_s, text)


def _message(pod: dict[str, Any]) -> str:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    said = (each for each in conditions if each.get("type") == names.CONDITION_POD_SCHEDULED)
    return next((each.get("message", "") for each in said if each.get("status") == "False"), "")
