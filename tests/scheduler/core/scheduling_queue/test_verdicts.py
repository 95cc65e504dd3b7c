"""Pods are told once for each reason, and what they would be told now is always known."""

from __future__ import annotations

from scheduler.core.model.plan import Explain
from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.records import PodRecord
from scheduler.core.model.verdict import Code, NodeReason, Verdict
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.scheduling_queue.effects import Effects
from scheduler.core.scheduling_queue.gang_signatures import Until
from scheduler.core.scheduling_queue.queue import SchedulingQueue
from scheduler.core.scheduling_queue.signatures import Shape, ShapeKey
from scheduler.core.scheduling_queue.unschedulable import LARGE
from scheduler.core.scheduling_queue.verdicts import Verdicts


def _lacks(nodes: int, *more: str) -> Verdict:
    reasons = (NodeReason("insufficient", "cpu", nodes), *(NodeReason(kind, "", 1) for kind in more))
    return Verdict(code=Code.NO_NODE_FITS, node_reasons=reasons)


_HELD = Verdict(code=Code.CLAIM_NOT_FOUND, detail="data")
_NOBODY: frozenset[str] = frozenset()


def _shape(said: Verdicts, *uids: str) -> Shape:
    made = Shape(ShapeKey("ns", PodClass()))
    for uid in uids:
        made.put(PodRecord(uid=uid, namespace="ns", name=uid, rv="1", node="", cls=PodClass()))
        said.join(uid, made)
    return made


def _told(said: Verdicts) -> list[Explain]:
    news = said.news(_NOBODY)
    said.told(news)
    return news


def test_a_shape_is_told_once_and_other_counts_are_no_news() -> None:
    said = Verdicts()
    shape = _shape(said, "a", "b")
    said.say_shape(shape, _lacks(2), served=set())
    assert _told(said) == [Explain(pods=("a", "b"), pod_group=None, verdict=_lacks(2))]
    said.say_shape(shape, _lacks(3), served=set())
    assert _told(said) == []
    assert said.verdict("a") == _lacks(3)


def test_another_reason_is_news_for_all_and_the_old_one_again_too() -> None:
    said = Verdicts()
    shape = _shape(said, "a", "b")
    for verdict in (_lacks(2), _lacks(2, "taint"), _lacks(2)):
        said.say_shape(shape, verdict, served=set())
        assert [entry.pods for entry in _told(said)] == [("a", "b")]


def test_what_was_not_told_stays_news_until_it_is_what_was_told_again() -> None:
    said = Verdicts()
    shape = _shape(said, "a")
    said.say_shape(shape, _lacks(2), served=set())
    _told(said)
    said.say_shape(shape, _lacks(2, "taint"), served=set())
    assert said.news(_NOBODY) == said.news(_NOBODY) != []
    said.say_shape(shape, _lacks(1), served=set())
    assert said.news(_NOBODY) == []


def test_a_pod_that_joins_a_shape_says_what_the_shape_says() -> None:
    said = Verdicts()
    shape = _shape(said, "a")
    said.say_shape(shape, _lacks(2), served=set())
    _told(said)
    shape.put(PodRecord(uid="b", namespace="ns", name="b", rv="1", node="", cls=PodClass()))
    said.join("b", shape)
    assert [entry.pods for entry in _told(said)] == [("b",)]


def test_a_pod_that_had_a_reason_of_its_own_says_what_the_shape_says_that_it_joins() -> None:
    said = Verdicts()
    shape = _shape(said, "a")
    said.say_shape(shape, _lacks(2), served=set())
    said.say(["b"], _HELD)
    _told(said)
    shape.put(PodRecord(uid="b", namespace="ns", name="b", rv="1", node="", cls=PodClass()))
    said.join("b", shape)
    assert said.verdict("b") == _lacks(2)
    assert [entry.pods for entry in _told(said)] == [("b",)]


def test_a_pod_that_was_served_keeps_its_own_reason_until_the_next_verdict() -> None:
    said = Verdicts()
    shape = _shape(said, "a", "b")
    for served, expected in (({"a"}, _HELD), (set[str](), _lacks(2))):
        if served:
            said.say(served, _HELD)
        said.say_shape(shape, _lacks(2), served=served)
        assert said.verdict("a") == expected
        assert said.verdict("b") == _lacks(2)


def test_a_reason_that_lasts_stands_against_those_of_shape_and_gang_until_the_pod_is_filed_again() -> None:
    said = Verdicts()
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
    said = Verdicts()
    said.say(["a", "b"], _HELD, ("ns", "g"))
    assert _told(said) == [Explain(pods=("a", "b"), pod_group=("ns", "g"), verdict=_HELD)]


def test_those_who_are_placed_are_told_nothing() -> None:
    said = Verdicts()
    said.say(["a", "b"], _HELD)
    assert [entry.pods for entry in said.news(frozenset({"a"}))] == [("b",)]


def test_a_pod_that_was_forgotten_is_told_again() -> None:
    said = Verdicts()
    said.say(["a"], _HELD)
    _told(said)
    said.forget("a")
    assert said.verdict("a") is None
    said.say(["a"], _HELD)
    assert [entry.pods for entry in _told(said)] == [("a",)]


def test_all_that_wait_are_told_of_by_their_present_verdicts() -> None:
    said = Verdicts()
    shape = _shape(said, "a", "b")
    said.say_shape(shape, _lacks(2), served=set())
    said.say(["c"], _HELD)
    _told(said)
    assert [(entry.pods, entry.verdict) for entry in said.all()] == [(("a", "b"), _lacks(2)), (("c",), _HELD)]


def test_pods_of_a_shape_that_was_not_decided_on_say_nothing() -> None:
    said = Verdicts()
    _shape(said, "a", "b")
    assert said.all() == []
    assert said.verdict("a") is None
    said.say(["b"], _HELD)
    assert [entry.pods for entry in said.all()] == [("b",)]


# What a decision learned: read by the rest of it at once, and by the next one once it is taken.

_CLS = PodClass()
_GANG = ("ns", "g")
_NOWHERE = Verdict(code=Code.NO_NODE_FITS)


def _made() -> tuple[SchedulingQueue, Effects]:
    scheduling_queue = SchedulingQueue(Ledger())
    scheduling_queue.touch_gang(*_GANG, waits=True)
    return scheduling_queue, Effects(scheduling_queue)


def _take(scheduling_queue: SchedulingQueue, effects: Effects) -> None:
    for note in effects.taken:
        note.take(scheduling_queue)


def test_a_class_that_failed_is_known_to_the_decision_at_once_and_to_the_scheduling_queue_later() -> None:
    scheduling_queue, effects = _made()
    kept = scheduling_queue.unschedulable.kept(_CLS, _NOWHERE, charged=(), generation=1)
    effects.failed(_CLS, kept, is_told=True)
    assert effects.kept(_CLS) == kept
    assert scheduling_queue.unschedulable.get(_CLS) is None
    _take(scheduling_queue, effects)
    assert scheduling_queue.unschedulable.get(_CLS) == kept


def test_a_class_of_which_a_pod_was_placed_is_kept_no_longer() -> None:
    scheduling_queue, effects = _made()
    scheduling_queue.unschedulable.put(
        _CLS, scheduling_queue.unschedulable.kept(_CLS, _NOWHERE, charged=(), generation=1)
    )
    effects.fits(_CLS)
    assert effects.kept(_CLS) is None
    assert scheduling_queue.unschedulable.get(_CLS) is not None
    _take(scheduling_queue, effects)
    assert scheduling_queue.unschedulable.get(_CLS) is None


def test_a_class_of_which_nothing_is_kept_leaves_no_note_for_each_pod_that_is_placed() -> None:
    _, effects = _made()
    effects.fits(_CLS)
    assert effects.taken == []


def test_a_comparison_does_not_make_a_verdict_the_newest() -> None:
    scheduling_queue, effects = _made()
    other, kept = PodClass(mode="mps"), scheduling_queue.unschedulable.kept(_CLS, _NOWHERE, charged=(), generation=1)
    scheduling_queue.unschedulable.put(_CLS, kept)
    scheduling_queue.unschedulable.put(other, kept)
    effects.failed(_CLS, kept, is_told=False)
    _take(scheduling_queue, effects)
    scheduling_queue._ledger.changes.last += 1
    assert scheduling_queue.unschedulable.oldest(1) == [_CLS]


def test_a_large_start_that_failed_pauses_others_in_this_decision_and_the_next() -> None:
    scheduling_queue, effects = _made()
    effects.start_failed(_GANG, LARGE + 1, 0)
    assert effects.pace.next_ns(("ns", "other")) > 0
    assert scheduling_queue.unschedulable.pace.next_ns(("ns", "other")) == 0
    _take(scheduling_queue, effects)
    assert scheduling_queue.unschedulable.pace.next_ns(("ns", "other")) == effects.pace.next_ns(("ns", "other"))


def test_a_small_start_that_failed_leaves_no_note() -> None:
    _, effects = _made()
    effects.start_failed(_GANG, LARGE, 0)
    assert effects.taken == []


def test_a_gang_sleeps_once_that_is_taken_and_wakes_when_its_time_has_come() -> None:
    scheduling_queue, effects = _made()
    effects.say(("a",), _NOWHERE, _GANG)
    effects.gang_is_of(_GANG, (_CLS,))
    effects.wake_at(5, _GANG)
    effects.sleep_gang(_GANG, Until.TOUCHED)
    assert scheduling_queue.awake_gangs()
    _take(scheduling_queue, effects)
    assert not scheduling_queue.awake_gangs()
    assert scheduling_queue.said.verdict("a") == _NOWHERE
    scheduling_queue.touch_due(4)
    assert not scheduling_queue.awake_gangs()
    scheduling_queue.touch_due(5)
    (gang,) = scheduling_queue.awake_gangs()
    assert gang.classes == (_CLS,)


def test_a_gang_that_is_gone_is_forgotten() -> None:
    scheduling_queue, effects = _made()
    effects.drop_gang(_GANG)
    _take(scheduling_queue, effects)
    assert not scheduling_queue.gangs()


def test_what_is_kept_of_a_gang_is_known_at_once() -> None:
    scheduling_queue, effects = _made()
    kept = scheduling_queue.unschedulable.kept_gang(_NOWHERE, asked=1, classes=(_CLS,), charged=(), generation=1)
    effects.gang_failed(_GANG, kept)
    assert effects.kept_gang(_GANG) == kept
    assert scheduling_queue.unschedulable.get_gang(_GANG) is None
    _take(scheduling_queue, effects)
    assert scheduling_queue.unschedulable.get_gang(_GANG) == kept


def test_a_pod_that_was_misfiled_is_touched() -> None:
    scheduling_queue, effects = _made()
    effects.misfiled("a")
    _take(scheduling_queue, effects)
    assert scheduling_queue.touched == {"a"}
