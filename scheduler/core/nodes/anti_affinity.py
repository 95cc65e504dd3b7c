"""Required anti-affinity of pods that have a node: what it keeps others off (kube-scheduler's InterPodAffinity).

A pod may not come to a topology domain in which a pod is whose term takes it, by its namespace and its labels. Equal
terms are kept once, by a namespace and a label that they ask for, so that a pod that waits is compared with few of
them; and what a set of labels has to keep off is kept until a term, one of its owners or a node's labels change.
``matchLabelKeys`` and ``mismatchLabelKeys`` stand in the selector: the API server merges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from typing import Final

import msgspec

from scheduler.core.convert.selectors import NamespaceRecord, everybody, takes
from scheduler.core.model.facts import Facts
from scheduler.core.model.records import AntiTerm, Domains, NodeRecord, PodRecord

_NONE: Final[Domains] = frozenset()
#: More different terms than that in one place of the index count as terms that take everybody: first of their own
#: namespaces, then of all. What one tenant writes may not make the decisions on others slow.
_MOST_ALIKE: Final = 32
#: A term of more namespaces is looked at for all of them.
_MOST_NAMESPACES: Final = 4
_MOST_KNOWN: Final = 10_000

#: A namespace and a label that a term asks for. None: any, or none by value.
_Place = tuple[str | None, tuple[str, str] | None]
_NOBODY: Final[dict[AntiTerm, None]] = {}


class OthersTerms:
    """Terms of pods, with the nodes of their owners. ``node`` finds a node; ``changed`` is told of any difference."""

    def __init__(self, node: Callable[[str], NodeRecord | None], changed: Callable[[], None]) -> None:
        self._node = node
        self._told = changed
        #: Labels of namespaces, which terms may select by.
        self.namespaces: Facts[str, NamespaceRecord] = Facts(lambda _: self._forget(), read_changed=self._forget)
        #: Pods with terms by UID, those of them that have no node, and which node counts.
        self._pods: dict[str, PodRecord] = {}
        self._unbound: set[str] = set()
        self._nodes: dict[str, str] = {}
        #: Terms that a pod was counted under.
        self._counted: dict[str, tuple[AntiTerm, ...]] = {}
        self._owners: dict[AntiTerm, Counter[str]] = {}
        self._index: dict[_Place, dict[AntiTerm, None]] = {}
        self._keys: Counter[str] = Counter()
        #: What pods of a namespace with these labels have to keep off.
        self._known: dict[tuple[str, frozenset[tuple[str, str]]], Domains] = {}
        #: Where the owners of these terms are.
        self._places: dict[tuple[AntiTerm, ...], Domains] = {}
        self._judged: dict[str, tuple[PodRecord, Domains, PodRecord]] = {}

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
            self._count(pod, pod.node)
            if not pod.node:
                self._unbound.add(pod.uid)

    def drop_pod(self, uid: str) -> None:
        """A pod is gone."""
        self._judged.pop(uid, None)
        self._unbound.discard(uid)
        pod = self._pods.pop(uid, None)
        if pod is not None:
            self._count(pod, "")

    def put_on_their_way(self, nodes: Mapping[str, str]) -> None:
        """Pods without a node that are on their way to one, by UID: they count there, until they have one."""
        for uid in self._unbound:
            self._count(self._pods[uid], nodes.get(uid, ""))

    @property
    def has_unbound(self) -> bool:
        """Whether a pod with terms has no node yet."""
        return bool(self._unbound)

    def nodes_changed(self) -> None:
        """A node is new or gone, or has other labels."""
        self._forget()

    def _count(self, pod: PodRecord, node: str) -> None:
        before = self._nodes.pop(pod.uid, "")
        if before == node:
            if node:
                self._nodes[pod.uid] = node
            return
        for term in self._counted.pop(pod.uid, ()):
            self._drop_owner(term, before)
        if node:
            self._nodes[pod.uid] = node
            self._counted[pod.uid] = tuple(self._put_owner(term, node) for term in pod.keeps_off)
        self._forget()

    def _put_owner(self, term: AntiTerm, node: str) -> AntiTerm:
        """Count an owner of a term, and return the term that it was counted under."""
        wide = (term, msgspec.structs.replace(term, selector=()), everybody(term.key))
        term = next((one for one in wide if one in self._owners or not self._is_crowded(one)), wide[-1])
        if term in self._owners:
            self._owners[term][node] += 1
            return term
        self._owners[term] = Counter({node: 1})
        for place in _places(term):
            self._index.setdefault(place, {})[term] = None
        self._keys.update(requirement.key for requirement in term.selector or ())
        return term

    def _drop_owner(self, term: AntiTerm, node: str) -> None:
        owners = self._owners[term]
        owners[node] -= 1
        if not owners[node]:
            del owners[node]
        if owners:
            return
        del self._owners[term]
        for place in _places(term):
            del self._index[place][term]
            if not self._index[place]:
                del self._index[place]
        self._keys -= Counter(requirement.key for requirement in term.selector or ())

    def _is_crowded(self, term: AntiTerm) -> bool:
        return any(len(self._index.get(place, ())) >= _MOST_ALIKE for place in _places(term))

    def _forget(self) -> None:
        self._known.clear()
        self._places.clear()
        self._told()

    # --- what decisions read -----------------------------------------------------------------------------------------
    def judged(self, pod: PodRecord) -> PodRecord:
        """A pod that waits, with the domains that it has to keep off."""
        if not self._owners:
            return pod
        avoided = self._avoided(pod)
        if not avoided:
            return pod
        known = self._judged.get(pod.uid)
        if known is None or known[0] is not pod or known[1] != avoided:
            cls = msgspec.structs.replace(pod.cls, avoids=avoided)
            known = self._judged[pod.uid] = (pod, avoided, msgspec.structs.replace(pod, cls=cls))
        return known[2]

    def _avoided(self, pod: PodRecord) -> Domains:
        asked = frozenset(label for label in pod.labels.items() if label[0] in self._keys)
        known = self._known.get((pod.namespace, asked))
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[pod.namespace, asked] = self._owned_by(tuple(self._terms_for(pod, asked)))
        return known

    def _owned_by(self, terms: tuple[AntiTerm, ...]) -> Domains:
        known = self._places.get(terms)
        if known is None:
            known = self._places[terms] = frozenset(domain for term in terms for domain in self._domains(term))
        return known

    def _terms_for(self, pod: PodRecord, asked: Iterable[tuple[str, str]]) -> Iterator[AntiTerm]:
        for place in product((None, pod.namespace), (None, *sorted(asked))):
            for term in self._index.get(place, _NOBODY):
                if self._means(term, pod.namespace) and takes(term.selector, pod.labels):
                    yield term

    def _means(self, term: AntiTerm, namespace: str) -> bool:
        if namespace in term.namespaces:
            return True
        if not self.namespaces.is_current:
            return term.namespace_selector is not None  # whether it takes this one is not known: keep off
        known = self.namespaces.get(namespace)
        return takes(term.namespace_selector, known.labels if known is not None else {})

    def _domains(self, term: AntiTerm) -> Iterator[tuple[str, str]]:
        """Where the owners of a term are; a node without the label is in no domain."""
        for name in self._owners[term]:
            node = self._node(name)
            if node is not None and (value := node.labels.get(term.key)) is not None:
                yield term.key, value


def _places(term: AntiTerm) -> Iterator[_Place]:
    """Where a term is looked for: of its places each pod that it takes has one, by the first label asked by value."""
    if term.selector is None:
        return iter(())
    first = next((requirement for requirement in term.selector if requirement.operator == "In"), None)
    labels = (None,) if first is None else tuple((first.key, value) for value in dict.fromkeys(first.values))
    is_anywhere = term.namespace_selector is not None or len(term.namespaces) > _MOST_NAMESPACES
    return product((None,) if is_anywhere else term.namespaces, labels)
