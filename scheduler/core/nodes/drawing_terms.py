"""Terms of other pods by which a pod is scored beside them: preferred ones, and required affinity.

Where the owners are is counted by decisions, as other pods are. Here is which terms take a pod: they become a part of
its class, and of nobody else's. So without such terms nothing is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice, product
from typing import Final

import msgspec

from scheduler.core.filters.pod_terms import LabelsOf, takes_pod
from scheduler.core.model.pod_preferences import WeightedTerm
from scheduler.core.model.records import PodRecord
from scheduler.core.nodes.term_index import Place, places_of

#: The most terms that take a pod, those of its own namespace first, and the most alike that are compared with it. What
#: one tenant writes may not make the decisions on others slow.
MOST_TAKING: Final = 32
_MOST_ALIKE: Final = 32
_MOST_KNOWN: Final = 10_000
_NOBODY: Final[dict[WeightedTerm, None]] = {}
_NONE: Final[frozenset[WeightedTerm]] = frozenset()


class DrawingTerms:
    """Different terms of pods, with or without a node. ``ignores_others``: as in ``Weights``."""

    def __init__(self, labels_of: LabelsOf, *, ignores_others: bool = False) -> None:
        self._labels_of = labels_of
        self._ignores_others = ignores_others
        self._pods: dict[str, tuple[WeightedTerm, ...]] = {}
        self._owners: Counter[WeightedTerm] = Counter()
        self._index: dict[Place, dict[WeightedTerm, None]] = {}
        #: Keys of labels that terms ask for.
        self._keys: Counter[str] = Counter()
        #: Terms that take pods of a namespace with these labels, until there are others.
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], frozenset[WeightedTerm]] = {}
        self._judged: dict[str, tuple[PodRecord, frozenset[WeightedTerm], PodRecord]] = {}

    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        known = self._pods.get(pod.uid, ())
        if known != pod.draws:
            self._forget_terms(pod.uid)
            if pod.draws:
                self._pods[pod.uid] = pod.draws
                for term in pod.draws:
                    self._add(term)
        if pod.node:
            self._judged.pop(pod.uid, None)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._judged.pop(uid, None)
        self._forget_terms(uid)

    def _forget_terms(self, uid: str) -> None:
        for term in self._pods.pop(uid, ()):
            self._drop(term)

    def forget_namespaces(self) -> None:
        """Labels of namespaces have changed."""
        self._known.clear()

    def _add(self, one: WeightedTerm) -> None:
        self._owners[one] += 1
        if self._owners[one] > 1:
            return
        for place in places_of(one.term):
            self._index.setdefault(place, {})[one] = None
        self._keys.update(requirement.key for requirement in one.term.selector or ())
        self._known.clear()

    def _drop(self, one: WeightedTerm) -> None:
        self._owners[one] -= 1
        if self._owners[one]:
            return
        del self._owners[one]
        for place in places_of(one.term):
            del self._index[place][one]
            if not self._index[place]:
                del self._index[place]
        for requirement in one.term.selector or ():
            self._keys[requirement.key] -= 1
            if not self._keys[requirement.key]:
                del self._keys[requirement.key]
        self._known.clear()

    def judged(self, pod: PodRecord) -> PodRecord:
        """A pod that waits, with the terms that take it."""
        if not self._owners or (self._ignores_others and not (pod.cls.prefers and pod.cls.prefers.pod_terms)):
            return pod
        taking = self._taking(pod)
        if not taking:
            return pod
        known = self._judged.get(pod.uid)
        if known is None or known[0] is not pod or known[1] != taking:
            cls = msgspec.structs.replace(pod.cls, drawn_by=taking)
            known = self._judged[pod.uid] = (pod, taking, msgspec.structs.replace(pod, cls=cls))
        return known[2]

    def _taking(self, pod: PodRecord) -> frozenset[WeightedTerm]:
        asked = frozenset(label for label in pod.labels.items() if label[0] in self._keys)
        known = self._known.get((pod.namespace, asked))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = dict.fromkeys(self._found(pod, asked))
            known = self._known[pod.namespace, asked] = frozenset(islice(found, MOST_TAKING)) if found else _NONE
        return known

    def _found(self, pod: PodRecord, asked: frozenset[tuple[str, str]]) -> Iterator[WeightedTerm]:
        for place in product((pod.namespace, None), (None, *sorted(asked))):
            for one in islice(self._index.get(place, _NOBODY), _MOST_ALIKE):
                if takes_pod(one.term, pod.namespace, pod.labels, self._labels_of, unknown=False):
                    yield one

    def differences(self, pods: Iterable[PodRecord]) -> list[str]:
        """Where the terms are not those of all pods."""
        counted = Counter(one for pod in pods for one in pod.draws)
        wrong = {one for one in counted.keys() | self._owners.keys() if counted[one] != self._owners[one]}
        return [f"pods that have {one} are counted wrongly" for one in wrong]
