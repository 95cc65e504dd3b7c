"""Nodes whose kubelets refused a pod because they could not align it, by who makes its successors.

A refused pod has failed for good, and its controller makes another one. That one is kept off the node for a while,
twice as long after each further refusal there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Controllers that are remembered, in all and of one namespace; of more, those that were refused last.
_MOST: Final = 4096
_MOST_OF_NAMESPACE: Final = 512
#: Nodes of a controller that are remembered.
_MOST_NODES: Final = 64


class RefusingNodes:
    """How often each node has refused pods of a controller, which is known by its identity (convert/owners.py)."""

    def __init__(self) -> None:
        self._by_controller: dict[str, dict[str, int]] = {}
        self._of_namespace: dict[str, dict[str, None]] = {}
        #: Pods (UIDs) whose refusal was counted: a watch shows them more than once.
        self._counted: dict[str, None] = {}

    def note(self, uid: str, namespace: str, controller: str, node: str) -> None:
        """A node has refused this pod of a controller of a namespace."""
        if uid in self._counted:
            return
        self._counted[uid] = None
        refusals = self._by_controller.pop(controller, {})
        refusals[node] = refusals.pop(node, 0) + 1
        self._by_controller[controller] = refusals
        own = self._of_namespace.setdefault(namespace, {})
        own.pop(controller, None)
        own[controller] = None
        if len(own) > _MOST_OF_NAMESPACE:
            self._by_controller.pop(next(iter(own)), None)
            _cut(own, _MOST_OF_NAMESPACE)
        _cut(self._of_namespace, _MOST)
        _cut(self._by_controller, _MOST)
        _cut(self._counted, _MOST)
        _cut(refusals, _MOST_NODES)

    def of(self, controller: str) -> Mapping[str, int]:
        """Refusals by node of pods of a controller."""
        return self._by_controller.get(controller, {})


def _cut(kept: dict[str, Any], most: int) -> None:
    """Forget what was put first."""
    while len(kept) > most:
        del kept[next(iter(kept))]
