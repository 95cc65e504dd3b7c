"""Pods are told once for each reason, and what they would be told now is always known."""

from __future__ import annotations

from scheduler.core.model.plan import Explain
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from scheduler.core.scheduling_queue.messages import Sayings
from scheduler.core.scheduling_queue.signatures import Shape, ShapeKey


def _lacks(nodes: int, *more: str) -> Verdict:
    reasons = (NodeReason("insufficient", "cpu", nodes), *(NodeReason(kind, "", 1) for kind in more))
    return Verdict(code=Code.NO_NODE_FITS, node_reasons=reasons)


_HELD = Verdict(code=Code.CLAIM_NOT_FOUND, detail="data")
_NOBODY: frozenset[str] = frozenset()


def _shape(said: Sayings, *uids: str) -> Shape:
    made = Shape(ShapeKey("ns", PodClass()))
    for uid in uids:
        made.put(PodRecord(uid=uid, namespace="ns", name=uid, rv="1", node="", cls=PodClass()))
        said.join(uid, made)
    return made


def _told(said: Sayings) -> list[Explain]:
    news = said.news(_NOBODY)
    said.told(news)
    return news


def test_a_shape_is_told_once_and_other_counts_are_no_news() -> None:
    said = Sayings()
    shape = _shape(said, "a", "b")
    said.say_shape(shape, _lacks(2), served=set())
    assert _told(said) == [Explain(pods=("a", "b"), pod_group=None, verdict=_lacks(2))]
    said.say_shape(shape, _lacks(3), served=set())
    assert _told(said) == []
    assert said.verdict("a") == _lacks(3)


def test_another_reason_is_news_for_all_and_the_old_one_again_too() -> None:
    said = Sayings()
    shape = _shape(said, "a", "b")
    for verdict in (_lacks(2), _lacks(2, "taint"), _lacks(2)):
        said.say_shape(shape, verdict, served=set())
        assert [entry.pods for entry in _told(said)] == [("a", "b")]


def test_what_was_not_told_stays_news_until_it_is_what_was_told_again() -> None:
    said = Sayings()
    shape = _shape(said, "a")
    said.say_shape(shape, _lacks(2), served=set())
    _told(said)
    said.say_shape(shape, _lacks(2, "taint"), served=set())
    assert said.news(_NOBODY) == said.news(_NOBODY) != []
    said.say_shape(shape, _lacks(1), served=set())
    assert said.news(_NOBODY) == []


def test_a_pod_that_joins_a_shape_says_what_the_shape_says() -> None:
    said = Sayings()
    shape = _shape(said, "a")
    said.say_shape(shape, _lacks(2), served=set())
    _told(said)
    shape.put(PodRecord(uid="b", namespace="ns", name="b", rv="1", node="", cls=PodClass()))
    said.join("b", shape)
    assert [entry.pods for entry in _told(said)] == [("b",)]


def test_a_pod_that_had_a_reason_of_its_own_says_what_the_shape_says_that_it_joins() -> None:
    said = Sayings()
    shape = _shape(said, "a")
    said.say_shape(shape, _lacks(2), served=set())
    said.say(["b"], _HELD)
    _told(said)
    shape.put(PodRecord(uid="b", namespace="ns", name="b", rv="1", node="", cls=PodClass()))
    said.join("b", shape)
    assert said.verdict("b") == _lacks(2)
    assert [entry.pods for entry in _told(said)] == [("b",)]


def test_a_pod_that_was_served_keeps_its_own_reason_until_the_next_verdict() -> None:
    said = Sayings()
    shape = _shape(said, "a", "b")
    for served, expected in (({"a"}, _HELD), (set[str](), _lacks(2))):
        if served:
            said.say(served, _HELD)
        said.say_shape(shape, _lacks(2), served=served)
        assert said.verdict("a") == expected
        assert said.verdict("b") == _lacks(2)


def test_a_reason_that_lasts_stands_against_those_of_shape_and_gang_until_the_pod_is_filed_again() -> None:
    said = Sayings()
    shape = _shape(said, "a", "b")
    said.say(["a"], _HELD, lasts=True)
    said.say_shape(shape, _lacks(2), served=set())
    said.say_shape(shape, _lacks(2, "taint"), served=set())
    said.say(["a"], _lacks(3))
    assert [said.verdict(uid) for uid in "ab"] == [_HELD, _lacks(2, "taint")]
    said.release("a")
    said.join("a", shape)
    assert said.verdict("a") == _lacks(2, "taint")


def test_members_of_a_gang_are_told_as_such() -> None:
    said = Sayings()
    said.say(["a", "b"], _HELD, ("ns", "g"))
    assert _told(said) == [Explain(pods=("a", "b"), pod_group=("ns", "g"), verdict=_HELD)]


def test_those_who_are_placed_are_told_nothing() -> None:
    said = Sayings()
    said.say(["a", "b"], _HELD)
    assert [entry.pods for entry in said.news(frozenset({"a"}))] == [("b",)]


def test_a_pod_that_was_forgotten_is_told_again() -> None:
    said = Sayings()
    said.say(["a"], _HELD)
    _told(said)
    said.forget("a")
    assert said.verdict("a") is None
    said.say(["a"], _HELD)
    assert [entry.pods for entry in _told(said)] == [("a",)]


def test_all_that_wait_are_told_of_by_their_present_verdicts() -> None:
    said = Sayings()
    shape = _shape(said, "a", "b")
    said.say_shape(shape, _lacks(2), served=set())
    said.say(["c"], _HELD)
    _told(said)
    assert [(entry.pods, entry.verdict) for entry in said.all()] == [(("a", "b"), _lacks(2)), (("c",), _HELD)]


def test_pods_of_a_shape_that_was_not_decided_on_say_nothing() -> None:
    said = Sayings()
    _shape(said, "a", "b")
    assert said.all() == []
    assert said.verdict("a") is None
    said.say(["b"], _HELD)
    assert [entry.pods for entry in said.all()] == [("b",)]
