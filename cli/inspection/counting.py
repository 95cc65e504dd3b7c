"""A cluster as it was read once, counted by the functions that the scheduler counts by.

The scheduler's own cluster (scheduler/core/cluster.py) follows events, decides, and needs NumPy for that: importing it
took a third of what ``inspect`` takes. Here each object is taken once, and nothing is decided; a test holds both to the
same views.
"""

from __future__ import annotations

from scheduler.core.assumed.assumed import Commits
from scheduler.core.convert.bind_requests import bind_request_record
from scheduler.core.convert.nodes import node_record
from scheduler.core.convert.pods import seen_pod
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.node_usage import occupancy
from scheduler.core.report.node_view import Known, NodeView, node_view
from wire.core import Node, Pod
from wire.crds.bindrequest import BindRequest


class Count:
    """Nodes, hand-overs and pods of one moment; take each once, pods last."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._nodes: dict[str, NodeRecord] = {}
        self._pods = Pods()
        self._commits = Commits(self._pods, settings=settings, changed=_nothing, touched=_nothing)

    def upsert_node(self, node: Node) -> None:
        """Take a node."""
        record = node_record(node)
        self._nodes[record.name] = record

    def upsert_bind_request(self, request: BindRequest) -> None:
        """Take a hand-over. One without a readable charge is nobody's."""
        record = bind_request_record(request)
        if record is not None:
            self._commits.hand_overs.put(record)

    def upsert_pod(self, pod: Pod) -> None:
        """Take a pod. One that has ended holds nothing any more, except as a reservation with a book."""
        seen = seen_pod(pod, self._settings)
        if seen.reservation is not None:
            self._pods.put_reservation(seen.reservation)
            self._commits.reservation_seen(seen.reservation, None)
        if not seen.has_ended:
            if seen.record is not None:
                self._pods.put(seen.record)
                self._commits.pod_seen(seen.uid, is_bound=bool(seen.record.node))
        elif seen.reservation is None:
            if self._commits.hand_overs.is_named(seen.uid):
                self._pods.gone.put(seen.uid, None)
            self._commits.pod_gone(seen.uid)

    def node_names(self) -> list[str]:
        """Names of all nodes, sorted."""
        return sorted(self._nodes)

    def view(self, name: str) -> NodeView | None:
        """Show a node as it is counted; None if there is none of that name."""
        node = self._nodes.get(name)
        if node is None:
            return None
        pods, charges = tuple(self._pods.bound_to(name)), tuple(self._commits.charges_at(name))
        used = occupancy(
            node, pods=pods, reservations=self._pods.reserved_on(name), charges=charges, settings=self._settings
        )
        return node_view(node, used, pods=pods, charges=charges, known=Known(self._pods.records))


def _nothing(*_what: str) -> None:
    """Nothing is decided on this count, so nobody waits for a change."""
