"""Feeds the view from watches: pods, BindRequests, nodes."""

from __future__ import annotations

from collections.abc import Sequence

from binder.core.pods import view as read_pod
from binder.core.reservation_pod import ReservationTemplate
from binder.view import View
from gpu import reservation as reservations
from wire import names
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest


class PodSink:
    """Feeds pods: reservation pods by namespace and label, and everybody who may be a tenant."""

    def __init__(self, view: View, template: ReservationTemplate) -> None:
        self._view = view
        self._template = template

    def replace(self, objects: Sequence[Pod]) -> None:
        """Take a list: what is not in it is gone."""
        present = {pod.metadata.uid for pod in objects}
        for pod in [pod for uid, pod in self._view.pods.items() if uid not in present]:
            self._view.forget_pod(pod, is_last=False)
        for held in [held for held in self._view.reservations.values() if held.uid not in present]:
            self._view.forget_reservation(held)
        for obj in objects:
            self.upsert(obj)

    def upsert(self, obj: Pod) -> None:
        """Take a pod."""
        if self._is_reservation(obj):
            self._view.reservation_seen(reservations.read(obj))
        elif _may_be_tenant(obj):
            self._view.pod_seen(read_pod(obj))

    def delete(self, obj: Pod) -> None:
        """Take a pod's last state."""
        if self._is_reservation(obj):
            self._view.forget_reservation(reservations.read(obj))
        elif _may_be_tenant(obj):
            self._view.forget_pod(read_pod(obj), is_last=True)

    def _is_reservation(self, pod: Pod) -> bool:
        return reservations.is_reservation(pod, self._template.namespace, app=self._template.app)


def _may_be_tenant(pod: Pod) -> bool:
    annotations = pod.metadata.annotations or {}
    return (
        pod.spec.scheduler_name == names.SCHEDULER_NAME
        or names.GRANT in annotations
        or any(key.startswith(names.GPU_GROUP_LABEL) for key in pod.metadata.labels or ())
    )


class RequestSink:
    """Feeds BindRequests."""

    def __init__(self, view: View) -> None:
        self._view = view

    def replace(self, objects: Sequence[BindRequest]) -> None:
        """Take a list: what is not in it is gone."""
        self._view.keep_requests({request.metadata.uid for request in objects})
        for request in objects:
            self.upsert(request)

    def upsert(self, obj: BindRequest) -> None:
        """Take a BindRequest."""
        self._view.note_request(obj)

    def delete(self, obj: BindRequest) -> None:
        """Take a BindRequest's last state."""
        self._view.forget_request(obj.metadata.uid)


class NodeSink:
    """Feeds nodes: which are there, and which are cordoned."""

    def __init__(self, view: View) -> None:
        self._view = view

    def replace(self, objects: Sequence[Node]) -> None:
        """Take a list: what is not in it is gone."""
        present = {node.metadata.name for node in objects}
        for name in [name for name in self._view.nodes if name not in present]:
            self._remove(name)
        for node in objects:
            self.upsert(node)

    def upsert(self, obj: Node) -> None:
        """Take a node; a cordon lets its idle reservations go at once."""
        name = obj.metadata.name
        was = self._view.nodes.get(name)
        self._view.nodes[name] = obj.spec.unschedulable
        self._note_cards(obj)
        if was is not obj.spec.unschedulable:
            self._mark_node(name)

    def delete(self, obj: Node) -> None:
        """Take a node's last state."""
        self._remove(obj.metadata.name)

    def _note_cards(self, node: Node) -> None:
        cards = (node.metadata.annotations or {}).get(names.NODE_CARDS, "")
        if len(set(cards.split(","))) > 1:
            self._view.uneven.add(node.metadata.name)
        else:
            self._view.uneven.discard(node.metadata.name)

    def _remove(self, name: str) -> None:
        self._view.nodes.pop(name, None)
        self._view.uneven.discard(name)
        self._mark_node(name)

    def _mark_node(self, name: str) -> None:
        for group, held in self._view.reservations.items():
            if held.node == name:
                self._view.mark(group)
