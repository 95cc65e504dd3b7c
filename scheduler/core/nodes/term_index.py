"""Terms of pods, found by what they take: a pod is compared with few of them, however many pods have terms.

Equal terms are kept once, by a namespace and a label that they ask for. More than ``_MOST_ALIKE`` different terms in
one place count as terms that take everybody: first of their own namespaces, then of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Final

from scheduler.core.filters.pod_terms import LabelsOf, takes_pod, wider
from scheduler.core.model.pod_class import AntiTerm
from scheduler.core.model.records import PodRecord

#: What one tenant writes may not make the decisions on others slow.
_MOST_ALIKE: Final = 32
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
        return any(len(self._index.get(place, ())) >= _MOST_ALIKE for place in places_of(term))


def places_of(term: AntiTerm) -> Iterator[Place]:
    """Where a term is looked for: of its places each pod that it takes has one, by the first label asked by value."""
    if term.selector is None:
        return iter(())
    first = next((requirement for requirement in term.selector if requirement.operator == "In"), None)
    labels = (None,) if first is None else tuple((first.key, value) for value in dict.fromkeys(first.values))
    is_anywhere = term.namespace_selector is not None or len(term.namespaces) > _MOST_NAMESPACES
    return product((None,) if is_anywhere else term.namespaces, labels)
