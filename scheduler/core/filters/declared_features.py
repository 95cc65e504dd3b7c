"""Features of kubelets that a pod needs, which not all nodes of a cluster have (KEP-5328).

What a pod needs is inferred from its spec, as kube-scheduler 1.36 does. Its other features of nodes matter for changes
of pods that run, and so to nobody here. A feature that all supported kubelets have is taken out of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from typing_extensions import override

from scheduler.core.filters.filter import Filter
from scheduler.core.model.records import NodeRecord
from wire.core import Pod

_RESTART_ALL: Final = "RestartAllContainers"


def _restarts_all_containers(pod: Pod) -> bool:
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    return any(rule.action == _RESTART_ALL for each in containers for rule in each.restart_policy_rules or ())


def _maps_users_in_the_network_of_the_host(pod: Pod) -> bool:
    return pod.spec.host_network and pod.spec.host_users is False


#: Feature -> whether a pod needs it.
_NEEDED: Final[Mapping[str, Callable[[Pod], bool]]] = {
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "UserNamespacesHostNetworkSupport": _maps_users_in_the_network_of_the_host,
}
KNOWN: Final = frozenset(_NEEDED)


class DeclaredFeatures(Filter):
    """``status.declaredFeatures`` of the node."""

    kind = "features"
    words = "node(s) didn't match Pod's required features"

    @override
    def read(self, pod: Pod) -> tuple[str, ...] | None:
        """Features that the pod needs."""
        return tuple(feature for feature, is_needed in _NEEDED.items() if is_needed(pod)) or None

    @override
    def admits(self, node: NodeRecord, asked: tuple[str, ...]) -> bool:
        """Whether the node has each."""
        return {*asked} <= {*node.declared_features}

    @override
    def effort(self, asked: tuple[str, ...]) -> int:
        """Each feature is looked up."""
        return len(asked)

    @override
    def reads(self, node: NodeRecord) -> object:
        """The features."""
        return node.declared_features
