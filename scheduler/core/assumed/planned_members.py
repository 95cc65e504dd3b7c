"""Places that gangs' written plans name, kept for the members that are not bound yet.

A plan outlives the scheduler that wrote it, and is all that the next one has: a member may not have joined a book yet,
or its entry was taken out as abandoned. Its place is charged until the member is bound or gone, or the plan is taken
back; else others would be given it, and the gang be bound in part (docs/design/protocol.md, Gangs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from scheduler.core.model.facts import Membership
from scheduler.core.model.records import PlannedMember, PodGroupRecord, PodRecord
from scheduler.core.nodes.node_usage import Charge


class Promise(msgspec.Struct, frozen=True, gc=False):
    """One member of the plan of the PodGroup ``namespace``/``pod_group``."""

    namespace: str
    pod_group: str
    pod_uid: str


class Promises:
    """Planned members that are not seen bound. ``pods`` are the cluster's, read only.

    ``changed`` is called with nodes, ``touched`` with a pod that has a place now or has none any more.
    """

    __slots__ = ("_at", "_changed", "_of_group", "_of_pod", "_planned", "_pods", "_touched")

    def __init__(
        self, pods: Mapping[str, PodRecord], changed: Callable[[str], None], touched: Callable[[str], None]
    ) -> None:
        self._pods = pods
        self._changed = changed
        self._touched = touched
        self._planned: dict[Promise, PlannedMember] = {}
        self._at: Membership[Promise] = Membership()
        self._of_pod: Membership[Promise] = Membership()
        self._of_group: Membership[Promise] = Membership()

    def put(self, group: PodGroupRecord) -> None:
        """Take a PodGroup's plan as it is now."""
        self.drop(group.namespace, group.name)
        for uid, member in group.planned.items():
            promise = Promise(group.namespace, group.name, uid)
            self._planned[promise] = member
            self._at.move(promise, member.node)
            self._of_pod.move(promise, uid)
            self._of_group.move(promise, f"{group.namespace}/{group.name}")
            self.pod_changed(uid)

    def drop(self, namespace: str, pod_group: str) -> None:
        """A PodGroup is gone, or its plan."""
        for promise in tuple(self._of_group.at(f"{namespace}/{pod_group}")):
            self._settle(promise)

    def pod_changed(self, uid: str) -> None:
        """A pod was seen: its promises may count now, or it is bound and they never will again."""
        pod = self._pods.get(uid)
        for promise in tuple(self._of_pod.at(uid)):
            if pod is not None and pod.node:
                self._settle(promise)
            else:
                self._touched(uid)
                self._changed(self._planned[promise].node)

    def _settle(self, promise: Promise) -> None:
        member = self._planned.pop(promise)
        for index in (self._at, self._of_pod, self._of_group):
            index.move(promise, "")
        self._touched(promise.pod_uid)
        self._changed(member.node)

    def are_made_to(self, uid: str) -> bool:
        """Whether a place is kept for this pod."""
        return self._of_pod.has(uid) and any(self._counts(promise) for promise in self._of_pod.at(uid))

    def groups(self) -> set[tuple[str, str]]:
        """PodGroups (namespace, name) with a planned member that was not seen bound."""
        return {(promise.namespace, promise.pod_group) for promise in self._planned}

    def are_open(self) -> bool:
        """Whether a place is kept for any pod."""
        return any(self._counts(promise) for promise in self._planned)

    def charges_at(self, node: str) -> list[Charge]:
        """What is kept on a node."""
        return [self._charge(promise) for promise in self._at.at(node) if self._counts(promise)]

    def charges_of(self, uid: str) -> list[Charge]:
        """What is kept for this pod."""
        return [self._charge(promise) for promise in self._of_pod.at(uid) if self._counts(promise)]

    def all_charges(self) -> list[Charge]:
        """What is kept anywhere, without the indexes."""
        return [self._charge(promise) for promise in self._planned if self._counts(promise)]

    def _charge(self, promise: Promise) -> Charge:
        member = self._planned[promise]
        demand = self._pods[promise.pod_uid].cls.demand
        return Charge(pod_uid=promise.pod_uid, node=member.node, demand=demand, devices=member.devices)

    def _counts(self, promise: Promise) -> bool:
        """Whether the pod is there, unbound, and a member of that very gang: a plan has no say over others."""
        pod = self._pods.get(promise.pod_uid)
        if pod is None or pod.node:
            return False
        return (pod.namespace, pod.pod_group) == (promise.namespace, promise.pod_group)
