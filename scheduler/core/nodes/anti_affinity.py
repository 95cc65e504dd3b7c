"""Required anti-affinity of other pods: what it keeps a pod off (kube-scheduler's InterPodAffinity).

A pod may not come to a topology domain in which a pod is whose term takes it, by its namespace and its labels. What a
set of labels has to keep off is kept until a term, one of its owners or a node's labels change. Terms of pods that wait
are known as well: a decision may place their owners before those that they take.
``matchLabelKeys`` and ``mismatchLabelKeys`` are in the selector: the API server merges them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.filters.pod_terms import Labels
from scheduler.core.model.facts import Facts
from scheduler.core.model.pod_class import AntiTerm, Domains
from scheduler.core.model.records import NodeRecord, PodRecord
from scheduler.core.nodes.term_index import TermIndex

_MOST_KNOWN: Final = 10_000
_NO_LABELS: Final[Labels] = {}


class _KeptOff(msgspec.Struct, frozen=True):
    """What a pod has to keep off, and terms of pods that wait which take it."""

    domains: Domains = frozenset()
    waiting: frozenset[AntiTerm] = frozenset()


_NOTHING: Final = _KeptOff()


class OthersTerms:
    """Terms of pods, with the nodes of their owners. ``node`` finds a node; ``changed`` is called with differences."""

    def __init__(self, node: Callable[[str], NodeRecord | None], changed: Callable[[], None]) -> None:
        self._node = node
        self._told = changed
        #: Labels of namespaces, which terms may select by.
        self.namespaces: Facts[str, NamespaceRecord] = Facts(
            lambda _: self._namespaces_changed(), read_changed=self._namespaces_changed
        )
        self.have_namespaces_changed = False
        #: Pods with terms by UID, those of them that have no node, and which nodes count: none, or several on its way.
        self._pods: dict[str, PodRecord] = {}
        self._unbound: set[str] = set()
        self._nodes: dict[str, tuple[str, ...]] = {}
        #: Terms that a pod was counted under, with nodes.
        self._counted: dict[str, tuple[tuple[AntiTerm, str], ...]] = {}
        #: Of pods that have a node or are on their way to one, and of all others.
        self._placed, self._waiting = TermIndex(), TermIndex()
        #: What pods of a namespace with these labels have to keep off.
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], _KeptOff] = {}
        #: Where the owners of these terms are.
        self._places: dict[tuple[AntiTerm, ...], Domains] = {}
        self._judged: dict[str, tuple[PodRecord, _KeptOff, PodRecord]] = {}

    # --- what is seen ------------------------------------------------------------------------------------------------
    def put_pod(self, pod: PodRecord) -> None:
        """Take a pod as it is now."""
        known = self._pods.get(pod.uid)
        if known is not None and (known.node, known.keeps_off) == (pod.node, pod.keeps_off):
            self._pods[pod.uid] = pod
            return
        self.drop_pod(pod.uid)
        if pod.keeps_off:
            self._pods[pod.uid] = pod
            self._count(pod, (pod.node,) if pod.node else ())
            if not pod.node:
                self._unbound.add(pod.uid)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._judged.pop(uid, None)
        self._unbound.discard(uid)
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._forget_pod(uid)

    def put_on_their_way(self, nodes: Callable[[str], tuple[str, ...]]) -> None:
        """Pods without a node (UIDs) count on each node that they are on their way to, until they have one."""
        for uid in self._unbound:
            self._count(self._pods[uid], nodes(uid))

    @property
    def has_unbound(self) -> bool:
        """Whether a pod with terms has no node yet."""
        return bool(self._unbound)

    def nodes_changed(self) -> None:
        """A node is new or gone, or has other labels."""
        self._forget()

    def _count(self, pod: PodRecord, nodes: tuple[str, ...]) -> None:
        if self._nodes.get(pod.uid) == nodes:
            return
        self._forget_pod(pod.uid)
        self._nodes[pod.uid] = nodes
        index, at = self._index_of(nodes)
        self._counted[pod.uid] = tuple((index.put(term, node), node) for term in pod.keeps_off for node in at)
        self._forget()

    def _forget_pod(self, uid: str) -> None:
        index, _ = self._index_of(self._nodes.pop(uid, ()))
        for term, node in self._counted.pop(uid, ()):
            index.drop(term, node)
        self._forget()

    def _index_of(self, nodes: tuple[str, ...]) -> tuple[TermIndex, tuple[str, ...]]:
        """Where a pod with these nodes is counted, and at which."""
        return (self._placed, nodes) if nodes else (self._waiting, ("",))

    def _namespaces_changed(self) -> None:
        self.have_namespaces_changed = True
        self._forget()

    def _forget(self) -> None:
        self._known.clear()
        self._places.clear()
        self._told()

    # --- what decisions read -----------------------------------------------------------------------------------------
    def labels_of(self, namespace: str) -> Labels | None:
        """The labels of a namespace; None while nobody knows them."""
        if not self.namespaces.is_current:
            return None
        known = self.namespaces.get(namespace)
        return _NO_LABELS if known is None else known.labels

    def judged(self, pod: PodRecord) -> PodRecord:
        """A pod that waits, with what it has to keep off."""
        if not self._placed and not self._waiting:
            return pod
        kept_off = self._kept_off(pod)
        if kept_off == _NOTHING:
            return pod
        known = self._judged.get(pod.uid)
        if known is None or known[0] is not pod or known[1] != kept_off:
            cls = msgspec.structs.replace(pod.cls, avoids=kept_off.domains, taken_by=kept_off.waiting)
            known = self._judged[pod.uid] = (pod, kept_off, msgspec.structs.replace(pod, cls=cls))
        return known[2]

    def _kept_off(self, pod: PodRecord) -> _KeptOff:
        keys = (self._placed.keys, self._waiting.keys)
        asked = frozenset(label for label in pod.labels.items() if any(label[0] in each for each in keys))
        known = self._known.get((pod.namespace, asked))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[pod.namespace, asked] = _KeptOff(
                self._owned_by(tuple(self._placed.taking(pod, asked, self.labels_of))),
                frozenset(self._waiting.taking(pod, asked, self.labels_of)),
            )
        return known

    def _owned_by(self, terms: tuple[AntiTerm, ...]) -> Domains:
        known = self._places.get(terms)
        if known is None:
            known = self._places[terms] = frozenset(domain for term in terms for domain in self._domains(term))
        return known

    def _domains(self, term: AntiTerm) -> Iterator[tuple[str, str]]:
        """Where the owners of a term are; a node without the label is in no domain."""
        for name in self._placed.owners(term):
            node = self._node(name)
            if node is not None and (value := node.labels.get(term.key)) is not None:
                yield term.key, value
