"""Which terms of other pods take a pod."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.core.convert.pods import pod_record
from scheduler.core.filters.pod_terms import Labels, takes_pod
from scheduler.core.model.pod_class import Weights
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.inter_pod_affinity import MOST_TAKING, DrawingTerms
from tests.scheduler.core.filters.beside import APP_A, HOST
from tests.scheduler.core.objects import pod
from tests.scheduler.core.scores.preferences.scoring import PREFERRED, pods_preferred

_TEAMS = {"ns": {"team": "x"}, "other": {"team": "y"}}


def _labels_of(namespace: str) -> Labels | None:
    return _TEAMS.get(namespace)


def _record(name: str, spec: dict[str, Any], namespace: str = "ns", **labels: str) -> PodRecord:
    found = pod_record(pod(name, spec=spec, namespace=namespace, labels=labels), Settings())
    assert found is not None
    return found


def _preferring(weight: int = 1, selector: Any = APP_A, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": HOST, "labelSelector": selector, **more}
    return {"affinity": {"podAffinity": {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}}}


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        (_preferring(), 1),
        (_preferring(selector={}), 1),
        (_preferring(selector=None), 0),
        (_preferring(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]}), 1),
        (_preferring(selector={"matchLabels": {"app": "b"}}), 0),
        (_preferring(namespaces=["other"]), 0),
        (_preferring(namespaceSelector={"matchLabels": {"team": "x"}}), 1),
        (_preferring(namespaceSelector={"matchLabels": {"team": "y"}}), 0),
        (_preferring(namespaceSelector={}), 1),
    ],
)
def test_a_term_takes_pods_by_labels_and_namespaces(spec: dict[str, Any], count: int) -> None:
    terms = DrawingTerms(_labels_of)
    terms.put_pod(_record("owner", spec))
    waits = _record("w", {}, app="a")
    judged = terms.judged(waits)
    assert len(judged.cls.drawn_by) == count
    assert (judged is waits) is (not judged.cls.drawn_by)


def test_terms_go_with_their_last_owner() -> None:
    terms, waits = DrawingTerms(_labels_of), _record("w", {}, app="a")
    for name in "xy":
        terms.put_pod(_record(name, _preferring()))
    judged = terms.judged(waits)
    assert len(judged.cls.drawn_by) == 1
    terms.drop_pod("uid-x")
    assert terms.judged(waits) is judged
    terms.put_pod(_record("y", {}))
    assert terms.judged(waits) is waits


def test_labels_of_namespaces_that_change_count_from_then_on() -> None:
    teams: dict[str, Labels] = {}
    terms, waits = DrawingTerms(teams.get), _record("w", {}, app="a")
    terms.put_pod(_record("x", _preferring(namespaceSelector={"matchLabels": {"team": "x"}}), "other"))
    assert terms.judged(waits) is waits
    teams["ns"] = {"team": "x"}
    terms.forget_namespaces()
    assert terms.judged(waits).cls.drawn_by


def test_they_may_be_left_out_for_pods_without_terms() -> None:
    terms = DrawingTerms(_labels_of, ignores_others=True)
    terms.put_pod(_record("x", _preferring()))
    without, with_terms = _record("w", {}, app="a"), _record("v", pods_preferred((1, HOST)), app="a")
    assert terms.judged(without) is without
    assert terms.judged(with_terms).cls.drawn_by


def test_of_more_than_the_bound_those_of_its_own_namespace_take_a_pod_first() -> None:
    terms, waits = DrawingTerms(_labels_of), _record("w", {}, app="a")
    for number in range(99):
        terms.put_pod(_record(f"x{number}", _preferring(1 + number, namespaceSelector={}), "other"))
    assert len(terms.judged(waits).cls.drawn_by) == MOST_TAKING
    terms.put_pod(_record("own", _preferring(100)))
    assert any(each.term.namespaces for each in terms.judged(waits).cls.drawn_by)


@pytest.mark.parametrize("seed", range(10))
def test_after_any_events_the_terms_are_those_of_all_pods(seed: int) -> None:
    rng, terms, there = random.Random(seed), DrawingTerms(_labels_of), dict[str, PodRecord]()
    specs = [{}, *(_preferring(weight, {"matchLabels": {"app": app}}) for weight in (1, 2) for app in "ab")]
    specs += [_preferring(3, {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, namespaceSelector={})]
    waits = [_record(f"w{app}", {}, app=app) for app in "abc"]
    for _ in range(100):
        name = f"p{rng.randrange(8)}"
        if rng.random() < 0.3:
            there.pop(name, None)
            terms.drop_pod(f"uid-{name}")
        else:
            there[name] = _record(name, rng.choice(specs), rng.choice(("ns", "other")))
            terms.put_pod(there[name])
        for one in waits:
            expected = {
                term
                for each in there.values()
                for term in each.draws
                if takes_pod(term.term, one.namespace, one.labels, _labels_of, unknown=False)
            }
            assert terms.judged(one).cls.drawn_by == expected
        assert terms.differences(there.values()) == []
    assert terms.differences([_record("another", specs[1])]) != []


def test_weights_that_do_not_count_are_not_read() -> None:
    found = pod_record(pod(spec=_preferring()), Settings(weights=Weights(pod_affinity=0)))
    assert found is not None
    assert found.draws == ()
