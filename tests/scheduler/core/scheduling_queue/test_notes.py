"""What a decision learned: read by the rest of it at once, and by the next one once it is taken."""

from __future__ import annotations

from scheduler.core.model.pod_class import PodClass
from scheduler.core.model.verdict import Code, Verdict
from scheduler.core.nodes.ledger import Ledger
from scheduler.core.scheduling_queue.effects import Notes
from scheduler.core.scheduling_queue.gang_signatures import Until
from scheduler.core.scheduling_queue.queue import SchedulingQueue
from scheduler.core.scheduling_queue.unschedulable import LARGE

_CLS = PodClass()
_GANG = ("ns", "g")
_NOWHERE = Verdict(code=Code.NO_NODE_FITS)


def _made() -> tuple[SchedulingQueue, Notes]:
    backlog = SchedulingQueue(Ledger())
    backlog.touch_gang(*_GANG, waits=True)
    return backlog, Notes(backlog)


def _take(backlog: SchedulingQueue, notes: Notes) -> None:
    for note in notes.taken:
        note.take(backlog)


def test_a_class_that_failed_is_known_to_the_decision_at_once_and_to_the_backlog_later() -> None:
    backlog, notes = _made()
    kept = backlog.asleep.kept(_CLS, _NOWHERE, charged=(), generation=1)
    notes.failed(_CLS, kept, is_told=True)
    assert notes.kept(_CLS) == kept
    assert backlog.asleep.get(_CLS) is None
    _take(backlog, notes)
    assert backlog.asleep.get(_CLS) == kept


def test_a_class_of_which_a_pod_was_placed_is_kept_no_longer() -> None:
    backlog, notes = _made()
    backlog.asleep.put(_CLS, backlog.asleep.kept(_CLS, _NOWHERE, charged=(), generation=1))
    notes.fits(_CLS)
    assert notes.kept(_CLS) is None
    assert backlog.asleep.get(_CLS) is not None
    _take(backlog, notes)
    assert backlog.asleep.get(_CLS) is None


def test_a_class_of_which_nothing_is_kept_leaves_no_note_for_each_pod_that_is_placed() -> None:
    _, notes = _made()
    notes.fits(_CLS)
    assert notes.taken == []


def test_a_comparison_does_not_make_a_verdict_the_newest() -> None:
    backlog, notes = _made()
    other, kept = PodClass(mode="mps"), backlog.asleep.kept(_CLS, _NOWHERE, charged=(), generation=1)
    backlog.asleep.put(_CLS, kept)
    backlog.asleep.put(other, kept)
    notes.failed(_CLS, kept, is_told=False)
    _take(backlog, notes)
    backlog._ledger.changes.last += 1
    assert backlog.asleep.oldest(1) == [_CLS]


def test_a_large_start_that_failed_pauses_others_in_this_decision_and_the_next() -> None:
    backlog, notes = _made()
    notes.start_failed(_GANG, LARGE + 1, 0)
    assert notes.pace.next_ns(("ns", "other")) > 0
    assert backlog.asleep.pace.next_ns(("ns", "other")) == 0
    _take(backlog, notes)
    assert backlog.asleep.pace.next_ns(("ns", "other")) == notes.pace.next_ns(("ns", "other"))


def test_a_small_start_that_failed_leaves_no_note() -> None:
    _, notes = _made()
    notes.start_failed(_GANG, LARGE, 0)
    assert notes.taken == []


def test_a_gang_sleeps_once_that_is_taken_and_wakes_when_its_time_has_come() -> None:
    backlog, notes = _made()
    notes.say(("a",), _NOWHERE, _GANG)
    notes.gang_is_of(_GANG, (_CLS,))
    notes.wake_at(5, _GANG)
    notes.sleep_gang(_GANG, Until.TOUCHED)
    assert backlog.awake_gangs()
    _take(backlog, notes)
    assert not backlog.awake_gangs()
    assert backlog.said.verdict("a") == _NOWHERE
    backlog.touch_due(4)
    assert not backlog.awake_gangs()
    backlog.touch_due(5)
    (gang,) = backlog.awake_gangs()
    assert gang.classes == (_CLS,)


def test_a_gang_that_is_gone_is_forgotten() -> None:
    backlog, notes = _made()
    notes.drop_gang(_GANG)
    _take(backlog, notes)
    assert not backlog.gangs()


def test_what_is_kept_of_a_gang_is_known_at_once() -> None:
    backlog, notes = _made()
    kept = backlog.asleep.kept_gang(_NOWHERE, asked=1, classes=(_CLS,), charged=(), generation=1)
    notes.gang_failed(_GANG, kept)
    assert notes.kept_gang(_GANG) == kept
    assert backlog.asleep.get_gang(_GANG) is None
    _take(backlog, notes)
    assert backlog.asleep.get_gang(_GANG) == kept


def test_a_pod_that_was_misfiled_is_touched() -> None:
    backlog, notes = _made()
    notes.misfiled("a")
    _take(backlog, notes)
    assert backlog.touched == {"a"}
