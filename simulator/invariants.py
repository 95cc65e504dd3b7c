"""The independent checker of the safety invariants S1-S5 and S9 (docs/design/invariants.md).

It shares no code with the product. It is told two things: what happened on the machines (simulator/witness.py), and
every version of the API objects (simulator/observer.py) as plain JSON. It adds up exact fractions of what each pod
*asked when it was first seen* on the devices that its containers *really see*: what a pod claims later, and what
anybody believes about it, does not count.

The two streams are not in step: a container may start before the checker has seen its pod bound. So the machines'
records are judged in their order, each as soon as the version of the pod that it needs has come.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from simulator import facts
from simulator.devices import Device
from simulator.facts import Json, PodFacts
from simulator.gangs import Gangs
from simulator.usage import Usage
from simulator.violations import Findings
from simulator.witness import Freed, Held, Record, Started, Stopped
from wire import names

PODS: Final = "pods"
POD_GROUPS: Final = "podgroups"
BIND_REQUESTS: Final = "bindrequests"
CONFIG_MAPS: Final = "configmaps"
#: Kinds of which the checker wants to see every version, and whose leftovers it looks for.
WATCHED: Final = (PODS, POD_GROUPS, BIND_REQUESTS)
DELETED: Final = "DELETED"


class Checker:
    """Judges a run, on the physical ``devices`` of each node.

    ``gang_grace_s``: how long a gang may be bound in part; ``loss_window_s``: how long a stranger may be on a device
    whose reservation was lost.
    """

    def __init__(
        self,
        devices: Mapping[str, Iterable[Device]],
        *,
        gang_grace_s: float = 60.0,
        loss_window_s: float = 0.0,
    ) -> None:
        self.findings = Findings()
        self._cards = {device.uuid: device for node in devices.values() for device in node}
        self._usage = Usage(self._cards, self.findings, loss_window_s)
        self._gangs = Gangs(self.findings, gang_grace_s)
        self._records: deque[Record] = deque()
        self._pods: dict[str, PodFacts] = {}
        #: Device -> pods on the API server whose annotations hand it to them.
        self._promised: defaultdict[str, set[str]] = defaultdict(set)
        #: BindRequest UID (the attempt) -> the node that it chose.
        self._chosen: dict[str, str] = {}

    # --- the two streams ---------------------------------------------------------------------------------------------

    def witnessed(self, record: Record) -> None:
        """Take what happened on a machine."""
        self._records.append(record)
        self._judge_records()

    def observed(self, kind: str, event: str, raw: Json, at_s: float) -> None:
        """Take a version of an API object; ``event`` is ADDED, MODIFIED or DELETED."""
        # What lasted too long until now did so, even if this very version ends it.
        self._usage.judge_lost(at_s)
        self._gangs.judge(at_s)
        if kind == PODS:
            self._pod(facts.pod(raw), is_gone=event == DELETED, at_s=at_s)
            self._judge_records()
        elif kind == POD_GROUPS:
            self._gangs.pod_group(raw, at_s)
        elif kind == BIND_REQUESTS:
            self._chosen[raw["metadata"]["uid"]] = (raw.get("spec") or {}).get("selectedNode", "")

    def finish(self, at_s: float) -> None:
        """Judge what is still open at the end of a run."""
        self._judge_records()
        for record in self._records:
            if isinstance(record, Started):
                text = f"container {record.container} of {record.pod} ran on {record.node} without having been bound"
                self.findings.add("S5", record.at_s, text)
        self._usage.judge_lost(at_s)
        self._gangs.judge(at_s, is_end=True)

    def leftovers(self, objects: Mapping[str, Iterable[Json]], at_s: float) -> None:
        """Judge S9 when all work is gone: of what was made for it, nothing may be left (by plural: its objects)."""
        for raw in objects.get(PODS, ()):
            if facts.pod(raw).is_reservation:
                self._left("reservation pod", raw, at_s)
            elif names.BOOK_FINALIZER in (raw["metadata"].get("finalizers") or ()):
                self._left("our finalizer on pod", raw, at_s)
        for raw in objects.get(BIND_REQUESTS, ()):
            self._left("BindRequest", raw, at_s)
        for raw in objects.get(CONFIG_MAPS, ()):
            if facts.is_handover(raw):
                self._left("ConfigMap", raw, at_s)

    @property
    def report(self) -> Mapping[str, str]:
        """Return "held" or the violation of each invariant."""
        return self.findings.report()

    # --- pods --------------------------------------------------------------------------------------------------------

    def _pod(self, pod: PodFacts, *, is_gone: bool, at_s: float) -> None:
        known = self._pods.get(pod.uid)
        if known is not None:
            self._judge_binding(known, pod, at_s)
            # What it asked is what it asked when it was first seen.
            pod = replace(pod, asks=known.asks)
        elif pod.node:
            self._judge_attempt(pod, at_s)
        self._pods[pod.uid] = pod
        self._gangs.pod(pod, is_gone=is_gone, at_s=at_s)
        if pod.is_reservation:
            self._judge_book(pod, at_s)
        for uuid in self._promise(pod, is_gone=is_gone, before=known.promised if known else frozenset()):
            self._judge_promises(uuid, at_s)

    def _promise(self, pod: PodFacts, *, is_gone: bool, before: frozenset[str]) -> list[str]:
        """Note the devices that a pod is promised now; return those to which it is new."""
        now: frozenset[str] = frozenset() if is_gone or pod.has_ended or not pod.node else pod.promised
        for uuid in before - now:
            self._promised[uuid].discard(pod.uid)
        new = sorted(uuid for uuid in now if pod.uid not in self._promised[uuid])
        for uuid in new:
            self._promised[uuid].add(pod.uid)
        return new

    def _judge_binding(self, known: PodFacts, pod: PodFacts, at_s: float) -> None:
        if known.node and pod.node != known.node:
            self.findings.add("S5", at_s, f"pod {pod.key} was bound to {known.node}, then to {pod.node or 'no node'}")
        if pod.node and not known.node:
            self._judge_attempt(pod, at_s)

    def _judge_attempt(self, pod: PodFacts, at_s: float) -> None:
        chosen = self._chosen.get(pod.attempt, pod.node)
        if chosen != pod.node:
            self.findings.add("S5", at_s, f"pod {pod.key} is bound to {pod.node}, its attempt chose {chosen}")

    def _judge_book(self, pod: PodFacts, at_s: float) -> None:
        total = sum(pod.book.values(), Fraction(0))
        if total > 1:
            self.findings.add("S1", at_s, f"the book of {pod.key} holds {float(total):.6g} of a device")

    def _judge_promises(self, uuid: str, at_s: float) -> None:
        """Add up the shares of pods that are bound, whether their containers run already or not."""
        card = self._cards.get(uuid)
        if card is None:
            return
        live = [self._pods[uid] for uid in self._promised[uuid]]
        charges = {pod.key: sum(ask.charge(card.mem_mib) for ask in pod.asks.values()) for pod in live}
        if sum(charges.values()) > 1:
            told = ", ".join(f"{key} {float(charge):.6g}" for key, charge in sorted(charges.items()))
            self.findings.add("S1", at_s, f"{uuid} is promised to {told}")

    # --- records of the machines -------------------------------------------------------------------------------------

    def _judge_records(self) -> None:
        while self._records and self._judge(self._records[0]):
            self._records.popleft()

    def _judge(self, record: Record) -> bool:
        """Judge one record; False while the version of the pod that it needs has not come."""
        self._usage.judge_lost(record.at_s)
        self._gangs.judge(record.at_s)
        pod = self._pods.get(record.pod_uid)
        match record:
            case Held() | Started() if pod is None or not pod.node:
                return False
            case Held() if pod is not None:
                self._usage.held(record, pod)
            case Started() if pod is not None:
                self._judge_place(record, pod)
                self._usage.started(record, pod)
            case Freed():
                self._usage.freed(record)
            case Stopped():
                self._usage.stopped(record)
            case _:
                pass
        return True

    def _judge_place(self, record: Started, pod: PodFacts) -> None:
        if record.node != pod.node:
            self.findings.add("S5", record.at_s, f"pod {pod.key} runs on {record.node}, but is bound to {pod.node}")

    def _left(self, what: str, raw: Json, at_s: float) -> None:
        metadata: Mapping[str, Any] = raw["metadata"]
        place = f"{metadata.get('namespace', '')}/{metadata['name']}"
        self.findings.add("S9", at_s, f"{what} {place} is left after all work is gone")
