"""Which pods are where, and counts of them that are kept up to date."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.core.convert.pods import pod_record
from scheduler.core.filters.pod_rule import Drawing, Labels, Matcher, Owning, takes_pod
from scheduler.core.filters.spread import Staying
from scheduler.core.model.pod_class import AntiTerm, Requirement, WeightedTerm, Weights
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.inter_pod_affinity import MOST_TAKING, DrawingTerms
from scheduler.core.nodes.pod_places import PodPlaces
from tests.scheduler.core.filters.beside import APP_A, HOST
from tests.scheduler.core.objects import pod
from tests.scheduler.core.scores.preferences.scoring import PREFERRED, pods_preferred
from tests.whole import seeds

_A, _B = (Staying("ns", (Requirement("app", "In", (app,)),)) for app in "ab")


def _effort(places: PodPlaces, matcher: Matcher) -> int:
    """What it takes to ask for a count."""
    before = places.effort_spent
    places.per_node(matcher)
    return places.effort_spent - before


def _no_labels(_: str) -> Labels:
    return {}


def _record(name: str, app: str = "a") -> PodRecord:
    found = pod_record(pod(name, labels={"app": app}), Settings())
    assert found is not None
    return found


def test_pods_count_where_they_are() -> None:
    places = PodPlaces(_no_labels)
    places.put(_record("p"), ("n1",))
    places.put(_record("q"), ("n1",))
    places.put(_record("r", "b"), ("n2",))
    assert places.per_node(_A) == {"n1": 2}
    places.drop("uid-p")
    places.put(_record("q"), ("n2",))
    places.put(_record("r", "a"), ("n2",))
    assert places.per_node(_A) == {"n2": 2}
    assert places.per_node(_B) == {}


@pytest.mark.parametrize("seed", seeds(20))
def test_after_any_events_counts_equal_those_made_from_all_pods(seed: int) -> None:
    rng = random.Random(seed)
    places, there = PodPlaces(_no_labels), {}
    for _ in range(rng.choice((50, 3_000))):
        record = replace(_record(f"p{rng.randint(0, 20)}", rng.choice("ab")), deleting=rng.random() < 0.1)
        nodes = tuple(rng.sample(("n1", "n2", "n3"), rng.choice((0, 1, 1, 2))))
        places.put(record, nodes)
        there[record.uid] = (record, nodes)
        if rng.random() < 0.1:
            places.per_node(rng.choice((_A, _B)))
        if rng.random() < 0.02:
            places.age()
    assert places.differences({uid: place for uid, place in there.items() if place[1]}) == []


@pytest.mark.parametrize("by", ["draws", "keeps_off"])
def test_owners_of_a_term_are_counted_without_a_look_at_all_pods(by: str) -> None:
    one, other = (AntiTerm("zone", selector=(), namespaces=frozenset({name})) for name in ("a", "b"))
    matcher: Matcher = Owning(one) if by == "keeps_off" else Drawing(WeightedTerm(1, one))
    places = PodPlaces(_no_labels)
    for number in range(1_000):
        terms = {500: (one,), 501: (one, one), 502: (other,)}.get(number, ())
        owned = tuple(WeightedTerm(1, each) for each in terms) if by == "draws" else terms
        places.put(replace(_record(f"p{number}"), **{by: owned}), ("n1",))
    assert _effort(places, matcher) <= 2
    assert places.per_node(matcher) == {"n1": 2}
    places.drop("uid-p500")
    places.put(replace(_record("p501"), node="n1"), ("n1",))
    assert places.per_node(matcher) == {}
    places.forget_counts()
    assert places.per_node(matcher) == {}


def test_a_count_that_is_wrong_and_a_pod_elsewhere_are_told() -> None:
    places, record = PodPlaces(_no_labels), _record("p")
    places.put(record, ("n1",))
    places.per_node(_A)
    assert places.differences({"uid-p": (record, ("n2",))}) == ["pod uid-p is counted on ('n1',), it is on ('n2',)"]
    assert places.differences({}) == ["pod uid-p is counted elsewhere"]


def test_asking_costs_what_has_changed() -> None:
    places = PodPlaces(_no_labels)
    for number in range(1_000):
        places.put(_record(f"p{number}"), ("n1",))
    assert _effort(places, _A) > 250
    assert _effort(places, _A) == 1
    places.put(_record("q"), ("n1",))
    places.put(_record("r"), ("n1",))
    assert _effort(places, _A) == 2


def test_a_selector_that_reads_more_labels_costs_more() -> None:
    def spent(labels: int) -> int:
        places, keys = PodPlaces(_no_labels), tuple(f"k{key}" for key in range(labels))
        for number in range(1_000):
            places.put(_record(f"p{number}", f"{number}"), ("n1",))
        return _effort(places, Staying("ns", tuple(Requirement(key, "Exists", ()) for key in ("app", *keys))))

    # All labels are read of each pod, and from some number on each pod is compared.
    assert spent(0) < spent(1) < spent(7)
    assert spent(12) >= 1_000 * 13 // 12
    assert spent(100) >= 1_000 * 101 // 12


def test_counts_that_nobody_asks_for_in_a_period_are_made_again() -> None:
    places = PodPlaces(_no_labels)
    for number in range(100):
        places.put(_record(f"p{number}"), ("n1",))
    places.per_node(_A)
    places.age()
    assert _effort(places, _A) == 1
    places.age()
    places.age()
    assert _effort(places, _A) > 25


def test_changes_since_a_number_are_those_that_were_noted_or_nobody_knows() -> None:
    places = PodPlaces(_no_labels)
    number = places.number
    places.put(_record("p"), ("n1",))
    assert places.number > number
    assert places.changes_since(number, 9) is None  # nobody counted, so nothing was noted
    places.per_node(_A)
    number = places.number
    assert places.changes_since(number, 0) == []
    places.put(_record("p"), ("n2",))
    assert [(pod.uid, by) for pod, by in places.changes_since(number, 9) or ()] == [("uid-p", -1), ("uid-p", 1)]
    assert places.changes_since(number, 1) is None
    number = places.number
    places.forget_counts()
    assert places.changes_since(number, 9) is None


# Which terms of other pods take a pod.

_TEAMS = {"ns": {"team": "x"}, "other": {"team": "y"}}


def _labels_of(namespace: str) -> Labels | None:
    return _TEAMS.get(namespace)


def _drawing_terms_record(name: str, spec: dict[str, Any], namespace: str = "ns", **labels: str) -> PodRecord:
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
    terms.put_pod(_drawing_terms_record("owner", spec))
    waits = _drawing_terms_record("w", {}, app="a")
    judged = terms.judged(waits)
    assert len(judged.cls.drawn_by) == count
    assert (judged is waits) is (not judged.cls.drawn_by)


def test_terms_go_with_their_last_owner() -> None:
    terms, waits = DrawingTerms(_labels_of), _drawing_terms_record("w", {}, app="a")
    for name in "xy":
        terms.put_pod(_drawing_terms_record(name, _preferring()))
    judged = terms.judged(waits)
    assert len(judged.cls.drawn_by) == 1
    terms.drop_pod("uid-x")
    assert terms.judged(waits) is judged
    terms.put_pod(_drawing_terms_record("y", {}))
    assert terms.judged(waits) is waits


def test_labels_of_namespaces_that_change_count_from_then_on() -> None:
    teams: dict[str, Labels] = {}
    terms, waits = DrawingTerms(teams.get), _drawing_terms_record("w", {}, app="a")
    terms.put_pod(_drawing_terms_record("x", _preferring(namespaceSelector={"matchLabels": {"team": "x"}}), "other"))
    assert terms.judged(waits) is waits
    teams["ns"] = {"team": "x"}
    terms.forget_namespaces()
    assert terms.judged(waits).cls.drawn_by


def test_they_may_be_left_out_for_pods_without_terms() -> None:
    terms = DrawingTerms(_labels_of, ignores_others=True)
    terms.put_pod(_drawing_terms_record("x", _preferring()))
    without, with_terms = (
        _drawing_terms_record("w", {}, app="a"),
        _drawing_terms_record("v", pods_preferred((1, HOST)), app="a"),
    )
    assert terms.judged(without) is without
    assert terms.judged(with_terms).cls.drawn_by


def test_of_more_than_the_bound_those_of_its_own_namespace_take_a_pod_first() -> None:
    terms, waits = DrawingTerms(_labels_of), _drawing_terms_record("w", {}, app="a")
    for number in range(99):
        terms.put_pod(_drawing_terms_record(f"x{number}", _preferring(1 + number, namespaceSelector={}), "other"))
    assert len(terms.judged(waits).cls.drawn_by) == MOST_TAKING
    terms.put_pod(_drawing_terms_record("own", _preferring(100)))
    assert any(each.term.namespaces for each in terms.judged(waits).cls.drawn_by)


@pytest.mark.parametrize("seed", range(10))
def test_after_any_events_the_terms_are_those_of_all_pods(seed: int) -> None:
    rng, terms, there = random.Random(seed), DrawingTerms(_labels_of), dict[str, PodRecord]()
    specs = [{}, *(_preferring(weight, {"matchLabels": {"app": app}}) for weight in (1, 2) for app in "ab")]
    specs += [_preferring(3, {"matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}, namespaceSelector={})]
    waits = [_drawing_terms_record(f"w{app}", {}, app=app) for app in "abc"]
    for _ in range(100):
        name = f"p{rng.randrange(8)}"
        if rng.random() < 0.3:
            there.pop(name, None)
            terms.drop_pod(f"uid-{name}")
        else:
            there[name] = _drawing_terms_record(name, rng.choice(specs), rng.choice(("ns", "other")))
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
    assert terms.differences([_drawing_terms_record("another", specs[1])]) != []


def test_weights_that_do_not_count_are_not_read() -> None:
    found = pod_record(pod(spec=_preferring()), Settings(weights=Weights(pod_affinity=0)))
    assert found is not None
    assert found.draws == ()
