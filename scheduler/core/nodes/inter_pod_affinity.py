"""Terms of other pods by which a pod is kept off or scored (kube-scheduler's InterPodAffinity).

Terms are found by what they take, so a pod is compared with few of them, however many pods have terms. Equal terms are
kept once, by a namespace and a label that they ask for. ``matchLabelKeys`` and ``mismatchLabelKeys`` are in the
selector: the API server merges them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, product
from typing import Final

import msgspec

from scheduler.core.convert.selectors import NamespaceRecord
from scheduler.core.filters.pod_rule import Labels, LabelsOf, takes_pod, wider
from scheduler.core.model.facts import Facts
from scheduler.core.model.pod_class import AntiTerm, Domains, WeightedTerm
from scheduler.core.model.records import NodeRecord, PodRecord

#: What one tenant writes may not make the decisions on others slow.
#: More different terms than this in one place count as terms that take everybody: first of their own namespaces, then
#: of all.
_MOST_ALIKE: Final = 32
#: Terms that name no namespaces never take others: of them a namespace has this number of keys of nodes' labels, and
#: further ones keep nobody off.
_MOST_KEYS: Final = 128
#: A term of more namespaces is looked at for all of them.
_MOST_NAMESPACES: Final = 4

#: A namespace and a label that a term asks for. None: any, or none by value.
Place = tuple[str | None, tuple[str, str] | None]
_NOBODY: Final[dict[AntiTerm, None]] = {}


class TermIndex:
    """Terms with the nodes of their owners; "" is the node of those that have none."""

    def __init__(self) -> None:
        self._owners: dict[AntiTerm, Counter[str]] = {}
        self._index: dict[Place, dict[AntiTerm, None]] = {}
        #: Keys of labels that terms ask for.
        self.keys: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many different terms there are."""
        return len(self._owners)

    def owners(self, term: AntiTerm) -> Mapping[str, int]:
        """Where the owners of a term are."""
        return self._owners[term]

    def put(self, term: AntiTerm, node: str) -> AntiTerm:
        """Count an owner of a term, and return the term that it was counted under."""
        wide = wider(term)
        term = next((one for one in wide if one in self._owners or not self._is_crowded(one)), wide[-1])
        if term in self._owners:
            self._owners[term][node] += 1
            return term
        self._owners[term] = Counter({node: 1})
        for place in places_of(term):
            self._index.setdefault(place, {})[term] = None
        self.keys.update(requirement.key for requirement in term.selector or ())
        return term

    def drop(self, term: AntiTerm, node: str) -> None:
        """An owner of a term that was counted is gone."""
        owners = self._owners[term]
        owners[node] -= 1
        if not owners[node]:
            del owners[node]
        if owners:
            return
        del self._owners[term]
        for place in places_of(term):
            del self._index[place][term]
            if not self._index[place]:
                del self._index[place]
        for requirement in term.selector or ():  # one by one: Counter's own subtraction looks at all keys
            self.keys[requirement.key] -= 1
            if not self.keys[requirement.key]:
                del self.keys[requirement.key]

    def taking(self, pod: PodRecord, asked: Iterable[tuple[str, str]], labels_of: LabelsOf) -> Iterator[AntiTerm]:
        """Terms that take a pod; ``asked``: those of its labels that terms ask for. It is kept off in doubt."""
        for place in product((None, pod.namespace), (None, *sorted(asked))):
            for term in self._index.get(place, _NOBODY):
                if takes_pod(term, pod.namespace, pod.labels, labels_of, unknown=True):
                    yield term

    def _is_crowded(self, term: AntiTerm) -> bool:
        most = _MOST_KEYS if term.is_own and term.is_widened else _MOST_ALIKE
        return any(len(self._index.get(place, ())) >= most for place in places_of(term))


def places_of(term: AntiTerm) -> Iterator[Place]:
    """Where a term is looked for: of its places each pod that it takes has one, by the first label asked by value."""
    if term.selector is None:
        return iter(())
    first = next((requirement for requirement in term.selector if requirement.operator == "In"), None)
    labels = (None,) if first is None else tuple((first.key, value) for value in dict.fromkeys(first.values))
    is_anywhere = term.namespace_selector is not None or len(term.namespaces) > _MOST_NAMESPACES
    return product((None,) if is_anywhere else term.namespaces, labels)


_MOST_KNOWN: Final = 10_000
_NO_LABELS: Final[Labels] = {}
_NO_OWNERS: Final[Mapping[tuple[AntiTerm, str], int]] = {}


class _KeptOff(msgspec.Struct, frozen=True):
    """What a pod has to keep off, and terms of pods that wait which take it."""

    domains: Domains = frozenset()
    waiting: frozenset[AntiTerm] = frozenset()


_NOTHING: Final = _KeptOff()


class OthersTerms:
    """Terms of pods, with the nodes of their owners. ``node`` finds a node; ``changed`` is called with differences.

    Required anti-affinity: a pod may not come to a topology domain in which a pod is whose term takes it, by its
    namespace and its labels. What a set of labels has to keep off is kept until a term, one of its owners or a node's
    labels change. Terms of pods that wait are known as well: a decision may place their owners before those that they
    take.
    """

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

    def judged(self, pod: PodRecord, gone: frozenset[str] = frozenset()) -> PodRecord:
        """A pod that waits, with what it has to keep off. ``gone``: pods (UIDs) that keep nobody off any more."""
        if not self._placed and not self._waiting:
            return pod
        kept_off = self._kept_off(pod) if gone.isdisjoint(self._counted) else self._kept_off_without(pod, gone)
        if kept_off == _NOTHING:
            return pod
        known = self._judged.get(pod.uid)
        if known is None or known[0] is not pod or known[1] != kept_off:
            cls = msgspec.structs.replace(pod.cls, avoids=kept_off.domains, taken_by=kept_off.waiting)
            known = self._judged[pod.uid] = (pod, kept_off, msgspec.structs.replace(pod, cls=cls))
        return known[2]

    def _asked(self, pod: PodRecord) -> frozenset[tuple[str, str]]:
        """Those of its labels that terms ask for."""
        keys = (self._placed.keys, self._waiting.keys)
        return frozenset(label for label in pod.labels.items() if any(label[0] in each for each in keys))

    def _kept_off_without(self, pod: PodRecord, gone: frozenset[str]) -> _KeptOff:
        """Likewise without the terms of pods that are gone. Nothing of it is remembered."""
        fewer = Counter(each for uid in gone for each in self._counted.get(uid, ()))
        asked = self._asked(pod)
        placed = self._placed.taking(pod, asked, self.labels_of)
        waiting = self._waiting.taking(pod, asked, self.labels_of)
        return _KeptOff(
            frozenset(domain for term in placed for domain in self._domains(term, fewer)),
            frozenset(term for term in waiting if self._waiting.owners(term)[""] > fewer[term, ""]),
        )

    def _kept_off(self, pod: PodRecord) -> _KeptOff:
        asked = self._asked(pod)
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

    def _domains(
        self, term: AntiTerm, fewer: Mapping[tuple[AntiTerm, str], int] = _NO_OWNERS
    ) -> Iterator[tuple[str, str]]:
        """Where the owners of a term are; a node without the label is in no domain. ``fewer``: owners that are gone."""
        for name, owners in self._placed.owners(term).items():
            node = self._node(name) if owners > fewer.get((term, name), 0) else None
            if node is not None and (value := node.labels.get(term.key)) is not None:
                yield term.key, value


#: The most terms that take a pod, those of its own namespace first, and the most alike that are compared with it. What
#: one tenant writes may not make the decisions on others slow.
MOST_TAKING: Final = 32
_NO_TERMS: Final[dict[WeightedTerm, None]] = {}
_NONE: Final[frozenset[WeightedTerm]] = frozenset()


class DrawingTerms:
    """Different preferred terms, and required affinity, of pods with or without a node.

    Where the owners are is counted by decisions, as other pods are. The terms that take a pod become a part of its
    class, and of nobody else's: without such terms nothing is looked at. ``ignores_others``: as in ``Weights``.
    """

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
            for one in islice(self._index.get(place, _NO_TERMS), _MOST_ALIKE):
                if takes_pod(one.term, pod.namespace, pod.labels, self._labels_of, unknown=False):
                    yield one

    def differences(self, pods: Iterable[PodRecord]) -> list[str]:
        """Where the terms are not those of all pods."""
        counted = Counter(one for pod in pods for one in pod.draws)
        wrong = {one for one in counted.keys() | self._owners.keys() if counted[one] != self._owners[one]}
        return [f"pods that have {one} are counted wrongly" for one in wrong]
