"""States of the protocol that runs have to reach: what was never reached was never tested, and a soak says so.

A mark is seen from outside, in what the API server answers and stores, and never in the product: so it stays true when
the product changes how it gets there. An invariant says what never happens; a mark says what has to happen sometimes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec

from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.types import ResourceType
from simulator.checks import nominations
from simulator.nodes.ground_truth import Record, Refused
from simulator.replicas import BINDER, SCHEDULER, is_ours
from simulator.world import World
from wire import names

_NAMED: Final = f'"name":"{nominations.NAME}"'.encode()
#: States that a run comes to if its room has this many of a field.
OF_PREEMPTION: Final[Mapping[str, str]] = {
    "room made": "nominations",
    "evicted for another pod": "evictions",
    "nominated pods of a nomination bound": "served",
    "nomination revised": "revised",
    "eviction for another pod refused": "refused",
}


class PreemptionCounts(msgspec.Struct, frozen=True):
    """How much one run preempted, by the record and evictions, so that a soak shows that its runs were not thin.

    ``served``: nominations of which all nominated pods were bound; ``revised``: those that were written again.
    """

    nominations: int = 0
    served: int = 0
    revised: int = 0
    evictions: int = 0
    refused: int = 0

    @property
    def marks(self) -> set[str]:
        """States that it came to."""
        return {mark for mark, name in OF_PREEMPTION.items() if getattr(self, name)}


@dataclass(slots=True)
class PreemptionCounter:
    """Counts in one run."""

    _known: dict[str, nominations.Nomination] = field(default_factory=dict)
    _standing: dict[str, nominations.Nomination] = field(default_factory=dict)
    _bound: set[str] = field(default_factory=set)
    _revised: set[str] = field(default_factory=set)
    _over: list[nominations.Nomination] = field(default_factory=list)
    _evictions: int = 0
    _refused: int = 0

    def attend(self, world: World) -> None:
        """Watch a cluster that is ready."""
        world.server.listen(self.stored)
        world.server.faults.on_answer.append(self.answered)
        world.server.faults.on_strike.append(self.struck)

    def struck(self, call: Call, fault: Fault) -> None:
        """Take a request that a fault refuses: the server never answers it, and the scheduler hears no less."""
        if fault.refuse_with:
            self.answered(call, fault.refuse_with)

    def answered(self, call: Call, code: int) -> None:
        """Take a request that was answered."""
        if call.subresource == "eviction" and call.user.startswith(SCHEDULER) and self._known:
            self._evictions += code < 300
            self._refused += code in (429, 500)

    def stored(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural == "pods" and not is_gone and b'"nodeName"' in raw:
            pod = msgspec.json.decode(raw)
            if pod["spec"].get("nodeName"):
                self._bound.add(pod["metadata"]["uid"])
        elif kind.plural == "configmaps" and _NAMED in raw:
            self._take([] if is_gone else nominations.nominations(msgspec.json.decode(raw)))

    def _take(self, listed: list[nominations.Nomination]) -> None:
        now = {nomination.id: nomination for nomination in listed}
        self._over += (nomination for id_, nomination in self._standing.items() if id_ not in now)
        self._revised |= {id_ for id_, nomination in now.items() if self._known.get(id_, nomination) != nomination}
        self._known.update(now)
        self._standing = now

    @property
    def made(self) -> PreemptionCounts:
        """What it came to."""
        served = sum(nomination.nominees <= self._bound for nomination in (*self._over, *self._standing.values()))
        return PreemptionCounts(len(self._known), served, len(self._revised), self._evictions, self._refused)


if TYPE_CHECKING:
    from simulator.world import World

_Seen = Callable[[Call, int], bool]


def _wrote(role: str, verb: str, what: str, *, within: str = "", saying: str = "", code: int = 0) -> _Seen:
    """Whether a replica of a role did this. ``what``: plural/sub-resource; ``saying``: a part of the body.

    ``code``: how it was answered; 0: it was carried out.
    """

    def seen(call: Call, answer: int) -> bool:
        return (
            call.user.startswith(role)
            and call.verb == verb
            and what == "/".join(part for part in (call.kind.plural, call.subresource) if part)
            and within in {"", call.namespace}
            and saying.encode() in (call.body or b"")
            and (answer == code if code else answer < 300)
        )

    return seen


def _lost_race(call: Call, answer: int) -> bool:
    return is_ours(call.user) and call.verb in {"patch", "update", "delete"} and answer == 409


_HOME: Final = names.RESERVATION_NAMESPACE
#: What is reached by a request that was answered.
_BY_WRITES: Final[Mapping[str, _Seen]] = {
    "handed over": _wrote(SCHEDULER, "create", "bindrequests"),
    "hand-over taken back": _wrote(SCHEDULER, "delete", "bindrequests"),
    "bound by the scheduler": _wrote(SCHEDULER, "create", "pods/binding"),
    "bound by the binder": _wrote(BINDER, "create", "pods/binding"),
    "binding refused": _wrote("", "create", "pods/binding", code=409),
    "told why it waits": _wrote(SCHEDULER, "patch", "pods/status"),
    "told what would help": _wrote(SCHEDULER, "patch", "pods/status", saying="lets it start (tried"),
    "held back at a limit": _wrote(SCHEDULER, "patch", "pods/status", saying="reached the allowable limit"),
    "held back at a quota": _wrote(SCHEDULER, "patch", "pods/status", saying="is over quota"),
    "queue can't be used": _wrote(SCHEDULER, "patch", "pods/status", saying="can't be used: "),
    "gang planned": _wrote(SCHEDULER, "patch", "podgroups", saying=names.PLAN),
    "reservation made": _wrote(BINDER, "create", "pods", within=_HOME),
    "reservation told its device": _wrote("reservation", "patch", "pods", within=_HOME),
    "reservation deleted": _wrote(BINDER, "delete", "pods", within=_HOME),
    "pod fenced": _wrote("", "patch", "pods/status", saying=f'"{names.FENCED}"'),
    "evicted by the binder": _wrote(BINDER, "create", "pods/eviction"),
    "evicted by the scheduler": _wrote(SCHEDULER, "create", "pods/eviction"),
    "node asked of an autoscaler": _wrote(SCHEDULER, "create", "pods", within=names.SCALE_ADJUST_NAMESPACE),
    "race lost": _lost_race,
}
#: What is reached by other means; the last ones are of runs in which room is made (coverage_marks.py).
_OTHERWISE: Final = (
    "device shared by two",
    "book empty again",
    "lease changed hands",
    "listed again",
    "pod refused by kubelet",
    "binding undone",
    *OF_PREEMPTION,
)
MARKS: Final = (*_BY_WRITES, *_OTHERWISE)
#: What is reached where the scheduler makes claims for pods (made_devices.py); nobody has to reach it elsewhere.
_WITH_CLAIMS: Final[Mapping[str, _Seen]] = {
    "claim made": _wrote(SCHEDULER, "create", "resourceclaims"),
    "claim made before": _wrote(SCHEDULER, "create", "resourceclaims", code=409),
    "claim named in a status": _wrote(SCHEDULER, "patch", "pods/status", saying='"requestMappings"'),
    "share given by a claim": _wrote(SCHEDULER, "patch", "pods/status", saying=names.CLAIMED_SHARE),
    "claim not named in time": _wrote(SCHEDULER, "patch", "pods/status", saying='"requestMappings"', code=409),
    "claim taken from a status": _wrote(SCHEDULER, "patch", "pods/status", saying='"extendedResourceClaimStatus":null'),
    "made claim deleted": _wrote(SCHEDULER, "delete", "resourceclaims"),
}
WITH_CLAIMS: Final = (*_WITH_CLAIMS,)
_SEEN: Final[Mapping[str, _Seen]] = {**_BY_WRITES, **_WITH_CLAIMS}


class _Identity(msgspec.Struct):
    uid: str


class _Where(msgspec.Struct):
    nodeName: str = ""  # noqa: N815 - the field of the API


class _Place(msgspec.Struct):
    """Where a pod is bound, of its JSON."""

    metadata: _Identity
    spec: _Where


_read_place: Final = msgspec.json.Decoder(_Place).decode


@dataclass(slots=True)
class Marks:
    """Watches one run. ``reached``: the marks that it came to."""

    reached: set[str] = field(default_factory=set)
    #: Reservation (UID) -> how many tenants its book had last.
    _tenants: dict[str, int] = field(default_factory=dict)
    #: Lease -> who holds it.
    _holders: dict[str, str] = field(default_factory=dict)
    #: UIDs of pods that were bound when they were stored last.
    _bound: set[str] = field(default_factory=set)
    #: Incarnations of the scheduler that have listed the nodes.
    _listed: set[int] = field(default_factory=set)
    _incarnation: Callable[[], int] = lambda: 0

    def attend(self, world: World) -> None:
        """Watch a cluster that is ready."""
        self._incarnation = lambda: world.scheduler.incarnations
        self._listed.add(world.scheduler.incarnations)
        world.server.faults.on_answer.append(self.answered)
        world.nodes.ground_truth.listeners.append(self.recorded)
        world.server.listen(self.stored)

    def answered(self, call: Call, code: int) -> None:
        """Take a request that was carried out."""
        self.reached.update(mark for mark, seen in _SEEN.items() if mark not in self.reached and seen(call, code))
        if (call.user, call.verb, call.kind.plural) == (SCHEDULER, "list", "nodes"):
            if self._incarnation() in self._listed:
                self.reached.add("listed again")
            self._listed.add(self._incarnation())

    def recorded(self, record: Record) -> None:
        """Take what happened on a machine."""
        if isinstance(record, Refused):
            self.reached.add("pod refused by kubelet")

    def stored(self, kind: ResourceType, raw: bytes, is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural == "pods":
            self._placed(_read_place(raw), is_gone=is_gone)
        if is_gone:
            return
        if kind.plural == "pods" and names.TENANTS.encode() in raw:
            self._book(msgspec.json.decode(raw))
        elif kind.plural == "leases":
            self._lease(msgspec.json.decode(raw))

    def _placed(self, pod: _Place, *, is_gone: bool) -> None:
        """Only a history that is set back takes a pod from its node."""
        uid = pod.metadata.uid
        if pod.spec.nodeName and not is_gone:
            self._bound.add(uid)
        elif uid in self._bound:
            self._bound.discard(uid)
            if not is_gone:
                self.reached.add("binding undone")

    def _book(self, pod: Mapping[str, Mapping[str, object]]) -> None:
        annotations = pod["metadata"].get("annotations")
        text = annotations.get(names.TENANTS, "{}") if isinstance(annotations, dict) else "{}"
        book = msgspec.json.decode(text)
        uid, count = str(pod["metadata"]["uid"]), len(book) if isinstance(book, dict) else 0
        if count >= 2:
            self.reached.add("device shared by two")
        if count == 0 and self._tenants.get(uid):
            self.reached.add("book empty again")
        self._tenants[uid] = count

    def _lease(self, lease: Mapping[str, Mapping[str, object]]) -> None:
        name, holder = str(lease["metadata"]["name"]), str(lease.get("spec", {}).get("holderIdentity") or "")
        if holder and self._holders.setdefault(name, holder) != holder:
            self.reached.add("lease changed hands")
            self._holders[name] = holder


def missing(reached: Collection[str]) -> tuple[str, ...]:
    """Return the marks that were not reached, in the order in which they stand here."""
    return tuple(mark for mark in MARKS if mark not in reached)
