"""The independent checker of the invariants (docs/design/invariants.md): safety after every event, the rest at rest.

It shares no code with the product. It learns what happened on the machines (simulator/nodes/ground_truth.py), every
version of the API objects as plain JSON (observer.py), who wrote what (evictions.py), and, when nothing is under way,
what schedulers have in their books (simulator/audit.py). It adds up exact fractions of what each pod *asked when
it was bound* on the devices that its containers *really see*: what a pod claims later, and what anybody believes about
it, does not count.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from simulator.checks import facts, fit, ledgers, messages
from simulator.checks.at_rest import AtRest
from simulator.checks.bindings import Bindings, Keeping, PoolNodes
from simulator.checks.claims import Claims
from simulator.checks.evictions import Evictions, Write, Writes
from simulator.checks.facts import Json, PodFacts
from simulator.checks.fit import Apart
from simulator.checks.gangs import Gangs, Pools
from simulator.checks.ledgers import Ledger, NodeFacts, Recount
from simulator.checks.limits import Lateness, Limits
from simulator.checks.messages import Asking, Scene
from simulator.checks.preemption import Nominations
from simulator.checks.shares import Promises, SliceUse, Usage
from simulator.checks.violations import Findings
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Freed, Held, Record, Started, Stopped
from wire import names


def leftovers(*, pods: Iterable[Json], requests: Iterable[Json], config_maps: Iterable[Json]) -> Iterator[str]:
    """Yield what is left when all work is gone, of all that was made for it (S9)."""
    for raw in pods:
        if facts.pod(raw).is_reservation:
            yield f"reservation pod {_place(raw)}"
        elif raw["metadata"].get("namespace") == names.SCALE_ADJUST_NAMESPACE:
            yield f"scaling pod {_place(raw)}"
        elif names.BOOK_FINALIZER in (raw["metadata"].get("finalizers") or ()):
            yield f"our finalizer on pod {_place(raw)}"
    for raw in requests:
        yield f"BindRequest {_place(raw)}"
    for raw in config_maps:
        if facts.is_handover(raw):
            yield f"ConfigMap {_place(raw)}"


def _place(raw: Json) -> str:
    metadata = raw["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


#: For so long others may not have heard what happened: watches are late, and an eviction takes its time.
_HEARSAY_S: Final = 300.0


@dataclass(slots=True)
class Releasable:
    """Says whose eviction S7 allows for the pod's own sake: its gang is broken, or it can't use what it was given.

    ``find``: a pod that is there, by namespace and name. ``devices``: those of each node. ``release_s``: for how long a
    gang must have been broken.
    """

    gangs: Gangs
    usage: Usage
    devices: Mapping[str, tuple[Device, ...]]
    find: Callable[[str, str], PodFacts | None]
    release_s: float
    #: Device -> until when it was seen unhealthy.
    _ill_at_s: dict[str, float] = field(default_factory=dict)

    def changed(self, known: PodFacts | None, pod: PodFacts, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a pod. ``known``: the one before it."""
        self._ill_at_s.update(dict.fromkeys(known.ill if known else (), at_s))
        self._ill_at_s.update(dict.fromkeys(pod.ill, at_s if is_gone else math.inf))

    def is_releasable(self, namespace: str, name: str, at_s: float) -> bool:
        """Whether this pod may be evicted now."""
        pod = self.find(namespace, name)
        if pod is None:
            return False
        if self.gangs.is_broken(pod.uid, at_s, for_s=self.release_s):
            return True
        return self.usage.is_contended(pod) or self._was_ill(pod, at_s) or self._is_elsewhere(pod)

    def _is_elsewhere(self, pod: PodFacts) -> bool:
        """Whether it was given a card of another machine (a reservation that lies): it can't run where it is."""
        cards = {device.uuid for device in self.devices.get(pod.node, ())}
        return any(grant.uuid not in cards for grant in pod.grants)

    def _was_ill(self, pod: PodFacts, at_s: float) -> bool:
        """Whether a device of its was unhealthy just now: who evicts may not have heard of its recovery."""
        return any(at_s - self._ill_at_s.get(grant.uuid, -math.inf) <= _HEARSAY_S for grant in pod.grants)


PODS: Final = "pods"
POD_GROUPS: Final = "podgroups"
BIND_REQUESTS: Final = "bindrequests"
CONFIG_MAPS: Final = "configmaps"
NODES: Final = "nodes"
QUEUES: Final = "queues"
#: ConfigMaps of the scheduler's namespace: the record of nominations is one of them.
NOMINATIONS: Final = "nominations"
BUDGETS: Final = "poddisruptionbudgets"
PRIORITY_CLASSES: Final = "priorityclasses"
#: Kinds of which the checker wants to see every version, all over the cluster.
WATCHED: Final = (NODES, PODS, POD_GROUPS, BIND_REQUESTS, QUEUES)
#: Those and what else it wants to see every version of.
SHOWN: Final = (*WATCHED, NOMINATIONS, BUDGETS, PRIORITY_CLASSES)
ADDED: Final = "ADDED"
DELETED: Final = "DELETED"


class Checker:
    """Judges a run, on the physical ``devices`` of each node.

    ``gang_grace_s``: how long a gang may be bound in part; ``release_s``: for how long it must have been broken before
    its rest may be evicted; ``loss_window_s``: how long a stranger may be on a device whose reservation was lost;
    ``lateness``: how late who decides may hear of queues; ``is_divided``: whether node pools have schedulers each;
    ``several_decide``: several schedulers decide at once.

    The streams are not in step: a container may start before the checker has seen its pod bound. So the machines'
    records are judged in their order, each as soon as the version of the pod that it needs has come. S10 is a judgement
    on a whole run: after a restart, or with several schedulers or binders at once, nothing is over-committed (S1, S2,
    S5), and at rest no pod is forgotten.
    """

    def __init__(
        self,
        devices: Mapping[str, Iterable[Device]],
        *,
        gang_grace_s: float = 60.0,
        release_s: float = 60.0,
        loss_window_s: float = 0.0,
        lateness: Lateness = Lateness(),  # noqa: B008 - frozen
        is_divided: bool = False,
        several_decide: bool = False,
    ) -> None:
        self.findings = Findings()
        self.writes = Writes(self.findings)
        self._devices = {node: tuple(listed) for node, listed in devices.items()}
        self._cards = {device.uuid: device for listed in self._devices.values() for device in listed}
        self._pods: dict[str, PodFacts] = {}
        self._promises = Promises(self.findings, self._cards, self._pods)
        self._usage = Usage(self._cards, self.findings, loss_window_s, self._promises.to)
        self._gangs = Gangs(self.findings, gang_grace_s)
        self.pools = Pools(is_divided, self._gangs.labels)
        self.limits = Limits(self.findings, lateness, self._card_mib, self.pools)
        self._records: deque[Record] = deque()
        self._bindings = Bindings(self.findings)
        self._pool_nodes = PoolNodes(self.findings, self.pools, self.limits)
        self._asking = Asking(self.findings)
        #: What is there now: pods by UID, nodes by name, BindRequests by UID.
        self.live: dict[str, PodFacts] = {}
        #: ResourceClaims and volumes that wait: S15 to S17, S19, and L7.
        self.claims = Claims(self.findings, self.live)
        self._at_rest = AtRest(
            self.findings, self.pools, self.limits, self._asking, self.live, several_decide, self.claims
        )
        #: Node ("" for none) -> UIDs of the pods that are there and name it.
        self._on_node: dict[str, dict[str, None]] = {}
        self._nodes: dict[str, NodeFacts] = {}
        self._slices = SliceUse(self.findings, self.live)
        self._recount = Recount(self.live, self._on_node, self._nodes)
        self._requests: set[str] = set()
        #: ConfigMaps that are there, by namespace and name, as far as they were seen.
        self.config_maps: set[tuple[str, str]] = set()
        self._keeping = Keeping(self.findings, self.writes, self._cards, self.live, self._on_node)
        #: Room that is made: S7 and S13 of evictions for others, S14, L6.
        self.nominations = Nominations(
            self.findings,
            self.limits,
            self._gangs,
            pods=self._pods,
            live=self.live,
            nodes=self._nodes,
            on_node=self._on_node,
            find=self._named,
        )
        self._releasable = Releasable(self._gangs, self._usage, self._devices, self._named, release_s)
        self._evictions = Evictions(self.findings, self._releasable.is_releasable, self.nominations.evicted)
        #: How often a ledger was compared with a recount.
        self.comparisons = 0
        #: What was done to our components, if anything: S10 is about runs in which something was.
        self._disturbance = ""

    # --- the two streams ---------------------------------------------------------------------------------------------

    def recorded(self, record: Record) -> None:
        """Take what happened on a machine."""
        self._slices.recorded(record)
        self._records.append(record)
        self._judge_records()

    def observed(self, kind: str, event: str, raw: Json, at_s: float) -> None:
        """Take a version of an API object; ``event`` is ADDED, MODIFIED or DELETED."""
        # What lasted too long until now did so, even if this very version ends it.
        self._usage.judge_lost(at_s)
        self._gangs.judge(at_s)
        self.nominations.judge(at_s)
        if kind == PODS:
            self._pod(facts.pod(raw), is_gone=event == DELETED, at_s=at_s)
            self._judge_records()
        elif kind == POD_GROUPS:
            self._gangs.pod_group(raw, at_s, is_gone=event == DELETED)
            self.limits.pod_group(raw, at_s, is_gone=event == DELETED)
            self.nominations.pod_group(raw, at_s, is_gone=event == DELETED)
        elif kind == QUEUES:
            self.limits.queue(raw, at_s, is_gone=event == DELETED)
            self.nominations.queue(raw, at_s, is_gone=event == DELETED)
        elif kind == BIND_REQUESTS:
            if event == ADDED:
                self.limits.decided(raw, at_s)
            self._bindings.chose(raw["metadata"]["uid"], (raw.get("spec") or {}).get("selectedNode", ""))
            self.nominations.request(raw, at_s, is_gone=event == DELETED)
            _keep(self._requests, raw["metadata"]["uid"], is_there=event != DELETED)
        elif kind == PRIORITY_CLASSES:
            self.limits.priority_class(raw, at_s, is_gone=event == DELETED)
        elif kind == BUDGETS:
            self.nominations.budget(raw, at_s, is_gone=event == DELETED)
        elif kind == NOMINATIONS:
            self.nominations.record(raw, at_s, is_gone=event == DELETED)
        else:
            self._node(raw, is_gone=event == DELETED, at_s=at_s)

    def wrote(self, write: Write) -> None:
        """Take a write that the API server has answered."""
        self.writes.take(write)
        self._evictions.take(write)

    def refitted(self, node: str, devices: Iterable[Device]) -> None:
        """A machine was replaced by another one under its name; what ran on the old one's cards is remembered."""
        self._devices[node] = tuple(devices)
        self._cards.update({device.uuid: device for device in self._devices[node]})

    def destroyed(self, node: str, uuid: str, at_s: float, *, shows_processes: bool) -> None:
        """A MIG slice was destroyed (S18). ``shows_processes``: the driver knew which processes used it."""
        self._slices.destroyed(node, uuid, at_s, shows_processes=shows_processes)

    def disturbed(self, what: str) -> None:
        """Note that a component was killed, or that several of a kind work at once."""
        self._disturbance = self._disturbance or what

    def ledger(self, ledger: Ledger, at_s: float) -> bool:
        """Compare a scheduler's ledger with a recount (S12); False while something is under way.

        For the caller to see to: that every watch, ours and the scheduler's, was handed everything.
        """
        if ledger.is_busy or self.has_requests:
            return False
        self.comparisons += 1
        for text in self._recount.differences(ledger):
            self.findings.add("S12", at_s, f"{ledger.scheduler}: {text}")
        return True

    @property
    def has_requests(self) -> bool:
        """Whether there is a BindRequest, so that no ledger can be judged."""
        return bool(self._requests)

    def finish(self, at_s: float) -> None:
        """Judge what is still open at the end of a run."""
        self._judge_records()
        for record in self._records:
            if isinstance(record, Started):
                self._bindings.never_bound(record)
        self._usage.judge_lost(at_s)
        self._gangs.judge(at_s, is_end=True)
        self.nominations.judge(at_s, is_end=True)
        if self._disturbance and self.findings.broken("S1", "S2", "S5"):
            self.findings.add("S10", at_s, f"S1, S2 or S5 was broken, and {self._disturbance}")

    # --- at rest -----------------------------------------------------------------------------------------------------

    @property
    def scene(self) -> Scene:
        """The cluster as it is now."""
        return Scene(
            nodes=self._nodes,
            rooms=fit.rooms(self.live.values(), self._nodes, self._devices),
            members=self._gangs.members(self.live),
            minimums=self._gangs.minimums,
            apart=Apart.of(self.live.values()),
            by_claims=frozenset(self.claims.records.extended.values()),
            config_maps=self.config_maps,
        )

    def fitting(self, scene: Scene) -> dict[str, str]:
        """Pods that wait though they fit, by UID: where (L1)."""
        return self._at_rest.fitting(scene, self._gangs.uncounted)

    def kept_from(self, scene: Scene) -> Callable[[PodFacts], Collection[str]]:
        """Return a function: the nodes from which a waiting pod is kept, by node reserves of its pool or other pods."""
        return self._at_rest.kept_from(scene)

    def _card_mib(self, pod: PodFacts, pool: str) -> int:
        """The device that a pod's claim gives it; else the smallest card of its node, or, while it waits, of a pool."""
        if pod.node and (given := self.claims.records.given_mib(pod)):
            return given
        listed = [self._devices.get(pod.node, ())] if pod.node else self._devices_of(pool)
        return min((card.mem_mib for cards in listed for card in cards if not card.is_slice), default=0)

    def _devices_of(self, pool: str) -> Iterable[Iterable[Device]]:
        if not self.pools.is_divided:
            return self._devices.values()
        return [self._devices.get(name, ()) for name, node in self._nodes.items() if node.pool == pool]

    @property
    def has_patient_pods(self) -> bool:
        """Whether a pod waits that is tried again from time to time."""
        return any(fit.is_patient(pod, self._devices.values()) for pod in self._at_rest.waiting())

    @property
    def has_passing_words(self) -> bool:
        """Whether a waiting pod says what is said only while something is under way."""
        said = (pod.verdict.message for pod in self._at_rest.waiting() if pod.verdict and not pod.is_gated)
        return any(map(messages.is_passing, said))

    def judge_waiting(self, at_s: float) -> None:
        """Judge what pods say that wait at rest: L3, L6 of kept nodes, and S11 of those whose asks are malformed."""
        self._at_rest.judge(self.scene, {name for name, uids in self._on_node.items() if uids}, at_s)

    def judge_forgotten(self, stuck: Iterable[str], at_s: float) -> None:
        """Judge at rest that each pod runs, has ended or says why it waits (S10).

        ``stuck``: UIDs of bound pods whose machine works, and that don't run.
        """
        mute = {pod.uid for pod in self._at_rest.waiting() if not pod.is_gated and pod.verdict is None}
        for uid in sorted({*mute, *stuck} & self.live.keys()):
            pod = self.live[uid]
            text = f"is bound to {pod.node} and does not run" if pod.node else "waits, and says nothing"
            self.findings.add("S10", at_s, f"pod {pod.key} is forgotten: it {text}")

    def refused(self, raw: Json, message: str, at_s: float) -> None:
        """A user's pod was refused by our webhooks (S11)."""
        self._asking.refused(raw, message, at_s)

    def _named(self, namespace: str, name: str) -> PodFacts | None:
        there = (pod for pod in self.live.values() if (pod.namespace, pod.name) == (namespace, name))
        return next(there, None)

    def leftovers(self, objects: Mapping[str, Iterable[Json]], at_s: float) -> None:
        """Judge S9 when all work is gone: of what was made for it, nothing may be left (by plural: its objects)."""
        pods, requests, config_maps = (objects.get(plural, ()) for plural in (PODS, BIND_REQUESTS, CONFIG_MAPS))
        for what in leftovers(pods=pods, requests=requests, config_maps=config_maps):
            self.findings.add("S9", at_s, f"{what} is left after all work is gone")

    @property
    def report(self) -> Mapping[str, str]:
        """Return "held" or the violation of each invariant."""
        return self.findings.report()

    # --- nodes and pods ----------------------------------------------------------------------------------------------

    def _node(self, raw: Json, *, is_gone: bool, at_s: float) -> None:
        name = raw["metadata"]["name"]
        known = self._nodes.get(name)
        if is_gone:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = ledgers.node(raw)
            self._pool_nodes.node(self._nodes[name], at_s)
        self._recount.changed(name)
        self.nominations.node(name, known, at_s)

    def _pod(self, pod: PodFacts, *, is_gone: bool, at_s: float) -> None:
        known = self._pods.get(pod.uid)
        self._recount.changed(pod.node)
        if known is not None:
            self._recount.changed(known.node)
        self._bindings.changed(known, pod, at_s)
        if known is not None and not known.node and pod.node and not is_gone:
            self._pool_nodes.bound(known, pod.node, at_s)
        if known is None:
            pod = replace(pod, is_placed_by_hand=bool(pod.node) and not pod.is_reservation)
        else:
            # What it asked is what it asked when it was bound.
            asks = known.asks if known.node else pod.asks
            pod = replace(pod, asks=asks, is_placed_by_hand=known.is_placed_by_hand)
        self._pods[pod.uid] = pod
        if known is not None and (is_gone or known.node != pod.node):
            self._on_node.get(known.node, {}).pop(pod.uid, None)
        if is_gone:
            self.live.pop(pod.uid, None)
            if pod.node and not pod.has_ended:
                self._usage.vanished(pod, at_s)
        else:
            self.live[pod.uid] = pod
            self._on_node.setdefault(pod.node, {})[pod.uid] = None
            self._judge_keeping(known, pod, at_s)
        self._gangs.pod(pod, is_gone=is_gone, at_s=at_s)
        self.limits.pod(pod, at_s, is_gone=is_gone)
        is_bound = known is not None and not known.node and bool(pod.node) and not is_gone
        self.nominations.pod(known, pod, at_s, is_bound=is_bound)
        self._releasable.changed(known, pod, at_s, is_gone=is_gone)
        if pod.is_reservation:
            self._judge_book(pod, at_s)
        self._promises.take(pod, is_gone=is_gone, before=known.promised if known else frozenset(), at_s=at_s)

    def _judge_keeping(self, known: PodFacts | None, pod: PodFacts, at_s: float) -> None:
        """S8, and S11 of what is bound."""
        if pod.is_reservation:
            self._keeping.book(known, pod, at_s)
        elif known is not None and known.node:
            self._keeping.changed(known, pod, at_s)
        elif known is not None and pod.node:
            self._keeping.bound(pod, at_s)
            self._asking.bound(pod, at_s)

    def _judge_book(self, pod: PodFacts, at_s: float) -> None:
        total = sum(pod.book.values(), Fraction(0))
        if total > 1:
            self.findings.add("S1", at_s, f"the book of {pod.key} holds {float(total):.6g} of a device")

    # --- records of the machines -------------------------------------------------------------------------------------

    def _judge_records(self) -> None:
        while self._records and self._judge(self._records[0]):
            self._records.popleft()

    def _judge(self, record: Record) -> bool:
        """Judge one record; False while the version of the pod that it needs has not come."""
        self._usage.judge_lost(record.at_s)
        self._gangs.judge(record.at_s)
        pod = self._pods.get(record.pod_uid)
        if pod is not None:
            pod = self._bindings.as_bound(pod)
        match record:
            case Held() | Started() if pod is None or not pod.node:
                return False
            case Held() if pod is not None:
                self._usage.held(record, pod)
            case Started() if pod is not None:
                self._bindings.started(record, pod, is_bound=self._pods[pod.uid] is pod)
                self._usage.started(record, pod)
            case Freed():
                self._usage.freed(record)
            case Stopped():
                self._usage.stopped(record)
            case _:
                pass
        return True


def _keep(uids: set[str], uid: str, *, is_there: bool) -> None:
    if is_there:
        uids.add(uid)
    else:
        uids.discard(uid)
