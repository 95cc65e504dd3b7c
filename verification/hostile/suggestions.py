"""L3 of suggested changes: a change that a pod's condition names helps, or did so not longer ago than the text says.

At random moments, and after each long pause, the changes that are shown are tried on a cluster made from nothing but
the stored objects. That is the slow way: no cache, no watch, nothing that the scheduler remembers. For a change that
does not help the cluster is taken back change by change: the sentence is true if the change helped at any moment within
the time that the text states and the time that a write may take, or since it was shown. Nobody waits for anything here
and nothing is written, so a run is what it is without this.

The group is tried alone and without a bound on the try. Claims, budgets, back-offs, and nodes and room that are kept
for others are not known here: what would keep the group waiting is left out, so what is found false is false.
"""

from __future__ import annotations

import calendar
import random
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import anyio
import msgspec

from kube.client.clock import Clock
from kube.client.resources import BIND_REQUESTS, NODES, POD_GROUPS, PODS, QUEUES
from scheduler.app import Scheduler
from scheduler.core.cluster import Cluster
from scheduler.core.convert.pod_groups import queue_record
from scheduler.core.decide.changes import UnknownObject, WithoutPods
from scheduler.core.decide.snapshot import Snapshot
from scheduler.core.model.preemption import PreemptionFacts
from scheduler.core.model.records import SeenPod
from scheduler.core.model.settings import Settings
from scheduler.core.what_if import known_ends
from scheduler.core.what_if.edits import NotPossible, Subject, subject_of_group, subject_of_uid
from scheduler.core.what_if.explanation import with_residents
from scheduler.core.what_if.group_changes import CPU, FRACTION, GPU_MEMORY, GPUS, MEMORY, Asking, Members
from scheduler.core.what_if.trials import Trying
from simulator.apiserver.types import ResourceType
from verification.hostile.faults import components
from wire import names
from wire.core import Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup
from wire.units import SECOND_NS

if TYPE_CHECKING:
    from simulator.world import World
    from verification.hostile.scenario import Scenario


_SENTENCE: Final = re.compile(
    r"(?:This change lets it start|Each of these changes, alone, lets it start) "
    r"\(tried, and renewed within (?P<minutes>\d+) minutes\): (?P<changes>.*)\.\Z",
    re.DOTALL,
)
_ASKING: Final = re.compile(r"request (?P<amount>[0-9.]+) (?P<unit>.+) per pod")
_MEMBERS: Final = re.compile(r"start with (?P<pods>\d+) pods? \(minMember: \d+\)")
_WAIT: Final = re.compile(r"wait until (?P<until>[-0-9]+ [:0-9]+Z) at the latest, when \d+ pods? ended, .*")
#: The unit of an amount, and how many of the edit's units are one of it.
_UNITS: Final = {
    "of a GPU": (FRACTION, 10**9),
    "MiB of GPU memory": (GPU_MEMORY, 1),
    "GPU": (GPUS, 1),
    "GPUs": (GPUS, 1),
    "CPU cores": (CPU, 1000),
    "MiB of memory": (MEMORY, 1),
}


class WaitUntil(msgspec.Struct, frozen=True):
    """It starts when the pods have ended that end by this time (wall clock)."""

    until_s: int


#: A change that can be suggested in a condition.
Suggestible: TypeAlias = Asking | Members | WaitUntil


class Claim(NamedTuple):
    """A pod (UID) is said to start after this change."""

    uid: str
    change: Suggestible


class Sentence(msgspec.Struct, frozen=True):
    """``renewed_s``: no change in it is shown for longer than this after it stopped helping."""

    changes: tuple[Suggestible, ...]
    renewed_s: int


class Unreadable(ValueError):
    """Raised for a sentence of a form that nobody described; the message has it."""


def sentence_of(message: str) -> Sentence | None:
    """Read the sentence with which a condition's message ends; None without one. Raises Unreadable."""
    found = _SENTENCE.search(message)
    if found is None:
        return None
    return Sentence(tuple(_changes(found["changes"])), 60 * int(found["minutes"]))


def _changes(text: str) -> Iterator[Suggestible]:
    for one in text.split("; "):
        if found := _ASKING.fullmatch(one):
            what, units = _UNITS[found["unit"]]
            yield Asking(what, int(Decimal(found["amount"]) * units))
        elif found := _MEMBERS.fullmatch(one):
            yield Members(int(found["pods"]))
        elif found := _WAIT.fullmatch(one):
            yield WaitUntil(calendar.timegm(time.strptime(found["until"], "%Y-%m-%d %H:%M:%SZ")))
        else:
            raise Unreadable(one)


KINDS: Final = {(each.group, each.plural) for each in (NODES, PODS, POD_GROUPS, QUEUES, BIND_REQUESTS)}


def is_decided_by(kind: ResourceType) -> bool:
    """Whether decisions read objects of this kind."""
    return (kind.group, kind.plural) in KINDS


class Key(NamedTuple):
    """An object by its kind (plural) and its name."""

    plural: str
    namespace: str
    name: str


class Change(NamedTuple):
    """One object was, until this time, as ``before``, and is ``after``; None: it was, or is, not there."""

    at_s: float
    key: Key
    before: bytes | None
    after: bytes | None


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta


_decoder: Final = msgspec.json.Decoder(_Named)


@dataclass(slots=True)
class History:
    """The objects that a decision reads, as the API server stores them now, and what they were before each change.

    ``kept_s``: changes that are older are forgotten.
    """

    kept_s: float
    objects: dict[Key, bytes] = field(default_factory=dict)
    changes: deque[Change] = field(default_factory=deque)

    def take(self, kind: ResourceType, raw: bytes, *, is_gone: bool, at_s: float) -> Change:
        """Take an object as it is stored, of a kind that decisions read (``is_decided_by``)."""
        meta = _decoder.decode(raw).metadata
        key = Key(kind.plural, meta.namespace, meta.name)
        after = None if is_gone else raw
        change = Change(at_s, key, self.objects.pop(key, None), after)
        if after is not None:
            self.objects[key] = after
        self.changes.append(change)
        while self.changes[0].at_s < at_s - self.kept_s:
            self.changes.popleft()
        return change


_TYPES: Final = {each.plural: each.type for each in (NODES, POD_GROUPS, BIND_REQUESTS, QUEUES, PODS)}
#: Nothing that is read once has a past.
_NOW_NS: Final = 0


class Reference:
    """A cluster as it was stored, for the scheduler with these settings. It goes back in time by ``undo``."""

    def __init__(self, settings: Settings, objects: Mapping[Key, bytes]) -> None:
        self._settings = settings
        self._objects = dict(objects)
        #: By what is stored: what is read of it. An object is read once, however often a cluster is made of it.
        self._read: dict[bytes, Any] = {}
        self._reading = Cluster(settings)
        self._made: Cluster | None = None

    def undo(self, change: Change) -> bool:
        """Take a change back; return whether it may matter to a decision."""
        if change.before is None:
            self._objects.pop(change.key, None)
        else:
            self._objects[change.key] = change.before
        before, after = (
            None if raw is None else _without_version(self._as_read(change.key.plural, raw))
            for raw in (change.before, change.after)
        )
        if before == after:
            return False
        self._made = None
        return True

    @property
    def cluster(self) -> Cluster:
        """The cluster as it is now."""
        if self._made is None:
            self._made = self._making()
        return self._made

    def is_about(self, uid: str) -> bool:
        """Whether a pod waits for this scheduler."""
        pod = self.cluster.pod(uid)
        return pod is not None and not (pod.node or pod.is_elsewhere or pod.deleting)

    def helps(self, claim: Claim, wall_s: int) -> bool:
        """Whether a waiting pod's group starts after a change, or as it is. ``wall_s``: now."""
        snapshot = self.cluster.prepared(_NOW_NS)
        found = _group_of(snapshot, claim.uid)
        if found is None or not found.waiting:
            return False
        if any(map(snapshot.is_spoken_for, found.uids)):
            return True  # it is being started
        trying = Trying(with_residents(snapshot, now_ns=_NOW_NS, wall_s=wall_s), found, _NOW_NS, wall_s)
        return trying.outcome().starts or self._starts_after(trying, claim.change)

    def _starts_after(self, trying: Trying, change: Suggestible) -> bool:
        if isinstance(change, WaitUntil):
            is_ahead = change.until_s > trying.wall_s
            return is_ahead and trying.outcome(*self._ended(change.until_s), wall_s=change.until_s).starts
        try:
            return trying.outcome(*change.changes(trying.snapshot, trying.subject)).starts
        except (NotPossible, UnknownObject):
            return False

    def _ended(self, until_s: int) -> tuple[WithoutPods, ...]:
        ends = known_ends.all_ends(self.cluster.snapshot().pods.records.values())
        uids = tuple(uid for end, uid in ends if end.at_s <= until_s)
        return (WithoutPods(uids),) if uids else ()

    # --- objects -----------------------------------------------------------------------------------------------------
    def _making(self) -> Cluster:
        """Make a cluster of what is stored."""
        made = Cluster(self._settings)
        found: dict[str, list[Any]] = {plural: [] for plural in _TYPES}
        for key, raw in self._objects.items():
            found[key.plural].append(self._as_read(key.plural, raw))
        made.replace_nodes(found[NODES.plural])
        made.replace_pod_groups(found[POD_GROUPS.plural])
        made.replace_bind_requests(found[BIND_REQUESTS.plural])
        made.queues.records.replace(found[QUEUES.plural])
        for seen in found[PODS.plural]:
            made.take_pod(made.interned(seen))
        made.note_preemption_facts(PreemptionFacts(version=1))
        return made

    def _as_read(self, plural: str, raw: bytes) -> Any:
        if raw not in self._read:
            obj = msgspec.json.decode(raw, type=_TYPES[plural])
            read: dict[str, Callable[[Any], Any]] = {
                NODES.plural: self._reading.read_node,
                QUEUES.plural: queue_record,
                PODS.plural: self._seen,
            }
            self._read[raw] = read.get(plural, _as_it_is)(obj)
        return self._read[raw]

    def _seen(self, pod: Pod) -> SeenPod:
        """Read a pod without its claims and its Job."""
        seen = self._reading.read_pod(pod)
        if seen.record is None:
            return seen
        record = msgspec.structs.replace(seen.record, claims=(), resource_claims=(), job="", job_name="")
        return msgspec.structs.replace(seen, record=record)


def _group_of(snapshot: Snapshot, uid: str) -> Subject | None:
    """What a pod is part of: its PodGroup, or itself alone."""
    pod = snapshot.pod(uid)
    if pod is None:
        return None
    of_group = subject_of_group(snapshot, pod.namespace, pod.pod_group) if pod.pod_group else None
    return of_group or subject_of_uid(snapshot, uid)


def _as_it_is(obj: Any) -> Any:
    return obj


def _without_version(read: Any) -> Any:
    """What an object says, but for its version and its status: two that are equal in that make one decision."""
    if isinstance(read, SeenPod):
        record = None if read.record is None else msgspec.structs.replace(read.record, rv="", started_s=0)
        held = None if read.reservation is None else msgspec.structs.replace(read.reservation, rv="")
        return msgspec.structs.replace(read, rv="", record=record, reservation=held)
    if isinstance(read, PodGroup | BindRequest):
        return read.metadata.uid, read.metadata.labels, read.metadata.annotations, read.spec
    return read


@dataclass(slots=True)
class Past:
    """Whether a change that helps no more did so a short time ago: the cluster is taken back change by change.

    ``reference``: the cluster as it is now. ``changes``: all, the oldest first. ``wall_s``: the wall clock's second at
    a time of the event loop.
    """

    reference: Reference
    changes: Sequence[Change]
    wall_s: Callable[[float], int]

    def has_helped(self, claim: Claim, *, earliest_s: float, now_s: float) -> bool:
        """Whether a change helped at any moment of a time (event loop's)."""
        ends_s, is_new = now_s, True
        for past in reversed(self.changes):
            # The reference is as the cluster was from ``past.at_s`` until ``ends_s``.
            if is_new and self._helped(claim, max(past.at_s, earliest_s), ends_s):
                return True
            if past.at_s < earliest_s:
                return False
            is_new = self.reference.undo(past) or isinstance(claim.change, WaitUntil)
            ends_s = past.at_s
        return is_new and self._helped(claim, earliest_s, ends_s)

    def _helped(self, claim: Claim, from_s: float, to_s: float) -> bool:
        """Whether it helped while nothing changed: at the end, and where time alone counts at the start."""
        times = (from_s, to_s) if isinstance(claim.change, WaitUntil) else (to_s,)
        return any(self.reference.helps(claim, self.wall_s(each)) for each in times)


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
