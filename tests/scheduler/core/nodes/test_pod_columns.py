"""Pods by columns: what a matcher takes of them is what it takes one by one."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from scheduler.core.convert.pods import pod_record
from scheduler.core.filters.pod_rule import Matcher
from scheduler.core.filters.pod_terms import Labels, TakenByAll
from scheduler.core.filters.spread import Staying
from scheduler.core.model.pod_class import AntiTerm, Requirement
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from scheduler.core.nodes.pod_places import PodColumns
from tests.scheduler.core.objects import pod

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Unknown")


def _labels_of(namespace: str) -> Labels | None:
    return {"n0": {"team": "x"}, "n1": {"team": "y"}}.get(namespace)


def _record(rng: random.Random, number: int) -> PodRecord:
    labels = {key: rng.choice("abc") for key in "klm" if rng.random() < 0.7}
    found = pod_record(pod(f"p{number}", labels={**labels, "own": f"{number}"}), Settings())
    assert found is not None
    return replace(found, namespace=f"n{rng.randrange(4)}", deleting=rng.random() < 0.2)


def _selector(rng: random.Random) -> tuple[Requirement, ...]:
    wanted = (rng.choice(("k", "l", "m", "own", "none")) for _ in range(rng.randint(0, 3)))
    values = ("a", rng.choice("bc12"))
    return tuple(Requirement(key, rng.choice(_OPERATORS), values) for key in wanted)


def _matcher(rng: random.Random) -> Matcher:
    if rng.random() < 0.5:
        return Staying(f"n{rng.randrange(4)}", _selector(rng))
    by_labels = rng.choice((None, (), (Requirement("team", "In", ("x",)),)))
    terms = (AntiTerm("", _selector(rng), frozenset({"n2"}), by_labels) for _ in range(rng.randint(1, 2)))
    return TakenByAll(tuple(terms), unknown=rng.random() < 0.5)


@pytest.mark.parametrize("seed", range(40))
def test_taken_are_those_that_the_matcher_takes(seed: int) -> None:
    rng, columns, there = random.Random(seed), PodColumns(), dict[int, PodRecord]()
    seen = set()
    for number in range(400):
        if there and rng.random() < (0.3 if number < 300 else 0.95):
            columns.drop(slot := rng.choice(list(there)))
            del there[slot]
        else:
            record = _record(rng, number)
            there[columns.add(record)] = record
        if rng.random() < 0.1:
            matcher = _matcher(rng)
            keys = matcher.reads
            assert keys is not None
            taken = columns.taken(matcher, keys, _labels_of)
            expected = {slot for slot, record in there.items() if matcher.takes(record, _labels_of)}
            assert set(taken.nonzero()[0].tolist()) == expected
            seen.add(bool(expected))
        if rng.random() < 0.02:
            columns.forget_labels()
    assert seen == {True, False}


def test_pods_that_are_alike_in_what_is_read_are_judged_once() -> None:
    columns, matcher = PodColumns(), _Counting()
    for number in range(100):
        found = pod_record(pod(f"p{number}", labels={"app": "ab"[number % 2], "own": str(number)}), Settings())
        assert found is not None
        columns.add(found)
    assert columns.taken(matcher, ("app",), _labels_of).sum() == 50
    assert matcher.asked == 2
    assert columns.taken(matcher, ("app", "own"), _labels_of).sum() == 50
    assert matcher.asked == 102


class _Counting:
    """Takes pods of one app, and counts how often it is asked."""

    reads = ("app",)

    def __init__(self) -> None:
        self.asked = 0

    def effort(self) -> int:
        return 1

    def takes(self, pod: PodRecord, labels_of: object) -> bool:
        del labels_of
        self.asked += 1
        return pod.labels.get("app") == "a"


def test_namespaces_and_values_that_are_gone_do_not_make_columns_grow() -> None:
    rng, columns = random.Random(1), PodColumns()
    matcher = Staying("ns", (Requirement("own", "Exists", ()),))
    columns.add(replace(_record(rng, 0), namespace="ns"))
    for number in range(2_000):
        slot = columns.add(replace(_record(rng, number), namespace=f"ns-{number}"))
        if number % 10 == 0:
            columns.taken(matcher, ("own",), _labels_of)
        columns.drop(slot)
    before = columns.effort_spent
    assert columns.taken(matcher, ("own",), _labels_of).tolist() == [True, False]
    assert columns.effort_spent - before < 20
