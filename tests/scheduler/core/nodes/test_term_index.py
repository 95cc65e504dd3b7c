"""Terms of pods, found by what they take."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from typing_extensions import override

from scheduler.core.model.pod_class import AntiTerm, Requirement
from scheduler.core.nodes.inter_pod_affinity import TermIndex

if TYPE_CHECKING:
    from _collections_abc import dict_items


class _Watched(Counter[str]):
    """Keys, and how often somebody looked at all of them."""

    looks = 0

    @override
    def items(self) -> dict_items[str, int]:
        self.looks += 1
        return super().items()


def test_a_term_that_goes_takes_its_keys_along_and_looks_at_no_others() -> None:
    index = TermIndex()
    index.keys = watched = _Watched()
    terms = [_term("app", "tier"), _term("app", "app", "stage")]
    for term in terms:
        index.put(term, "n")
    assert index.keys == Counter(app=3, tier=1, stage=1)
    watched.looks = 0
    index.drop(terms[1], "n")
    assert watched.looks == 0
    assert dict(index.keys) == {"app": 1, "tier": 1}
    index.drop(terms[0], "n")
    assert not index.keys


def _term(*keys: str) -> AntiTerm:
    selector = tuple(Requirement(key, "Exists", ()) for key in keys)
    return AntiTerm("host", selector=selector, namespaces=frozenset({"ns"}))
