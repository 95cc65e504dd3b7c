"""An attempt ends as its GpuNode shows; one that nobody takes up is withdrawn, and its GPU rests longer each time."""

from __future__ import annotations

import pytest

from scheduler.core.mig_partitioning.attempts import Attempts, GpuState, How, Withdraw
from scheduler.core.mig_partitioning.node_choice import CardCut, GpuPartition
from scheduler.core.model.mig import MigLayoutAsked, MigNode
from tests.scheduler.core.mig_partitioning.cards import ONE, TWO, card

CUT = CardCut(uuid="GPU-a", layout=(("2g.20gb", 0),), gone=((ONE, 2),), new=((TWO, 1),), cost=(2, 0, 8))
PARTITION = GpuPartition("n1", CUT, ("uid-p",))


def begun(attempt: str = "moorage-1") -> Attempts:
    attempts = Attempts()
    attempts.begin(PARTITION, attempt, [(ONE, 3)], now_s=0.0)
    return attempts


def shows(attempt: str = "", state: str = "", asked: str = "") -> dict[str, MigNode]:
    wanted = (MigLayoutAsked("GPU-a", asked, (("2g.20gb", 0),)),) if asked else ()
    return {"n1": MigNode(name="n1", rv="1", cards=(card("GPU-a", attempt=attempt, state=state),), asked=wanted)}


def test_what_goes_does_not_count_and_its_pods_are_covered() -> None:
    attempts = begun()
    assert attempts.caps() == {"n1": {ONE: 1}}
    assert (attempts.covered(), attempts.busy(0.0)) == ({"uid-p"}, {("n1", "GPU-a")})


@pytest.mark.parametrize("there", [3, 1], ids=["before the first counts", "after it"])
def test_what_goes_by_several_attempts_on_a_node_does_not_count(there: int) -> None:
    attempts = begun()
    other = GpuPartition("n1", CardCut(uuid="GPU-b", layout=(), gone=((ONE, 1),), new=(), cost=(0, 0, 0)), ())
    attempts.begin(other, "moorage-2", [(ONE, there)], now_s=0.0)
    assert attempts.caps() == {"n1": {ONE: 0}}


def test_after_an_attempt_that_was_done_its_slices_are_waited_for_and_the_gpu_rests() -> None:
    attempts = begun()
    assert attempts.observe(shows("moorage-1", "done"), now_s=5.0) == []
    assert (attempts.covered(), attempts.caps()) == ({"uid-p"}, {"n1": {ONE: 1}})
    assert attempts.observe(shows("moorage-1", "done"), now_s=35.0) == []
    assert (attempts.covered(), attempts.caps()) == (set(), {})
    assert (attempts.busy(64.9), attempts.busy(65.0)) == ({("n1", "GPU-a")}, set())


@pytest.mark.parametrize("state", ["refused", "failed"])
def test_after_a_refusal_the_gpu_rests_longer_each_time(state: str) -> None:
    attempts, now_s = begun(), 0.0
    for rest_s in (60.0, 120.0, 240.0):
        assert attempts.observe(shows("moorage-1", state), now_s=now_s) == []
        assert (attempts.covered(), attempts.caps()) == (set(), {})
        assert (attempts.busy(now_s + rest_s - 0.1), attempts.busy(now_s + rest_s)) == ({("n1", "GPU-a")}, set())
        now_s += rest_s
        attempts.begin(PARTITION, "moorage-1", [], now_s=now_s)


@pytest.mark.parametrize(
    ("shown", "now_s", "how", "state"),
    [
        (shows("moorage-1", "done"), 5.0, How.DONE, GpuState.RESTING),
        (shows("moorage-1", "refused"), 5.0, How.REFUSED, GpuState.LEFT_OUT),
        (shows("moorage-1", "failed"), 5.0, How.FAILED, GpuState.LEFT_OUT),
        (shows(), 60.0, How.WITHDRAWN, GpuState.LEFT_OUT),
        (shows("moorage-1", "underway"), 600.0, How.WITHDRAWN, GpuState.LEFT_OUT),
        ({}, 5.0, How.GONE, GpuState.LEFT_OUT),
    ],
)  # fmt: skip
def test_what_became_of_attempts_is_counted_once(
    shown: dict[str, MigNode], now_s: float, how: How, state: GpuState
) -> None:
    attempts = begun()
    assert (attempts.counts, attempts.states(0.0)) == ({How.ASKED: 1}, {GpuState.UNDER_WAY: 1})
    for _ in range(2):
        attempts.observe(shown, now_s=now_s)
        assert attempts.counts == {How.ASKED: 1, how: 1}
        assert +attempts.states(now_s) == {state: 1}
    assert not +attempts.states(now_s + 60.0)


def test_what_could_not_be_written_is_counted_and_what_others_asked_for_is_not() -> None:
    attempts = begun()
    attempts.forget("n1", "GPU-a")
    attempts.forget("n1", "GPU-a")
    attempts.begin(PARTITION, "moorage-2", [], now_s=0.0)
    attempts.drop("n1", "GPU-a", now_s=0.0)
    assert attempts.counts == {How.ASKED: 2, How.NOT_WRITTEN: 2}
    others = Attempts()
    others.observe(shows(asked="by hand"), now_s=0.0)
    others.observe(shows("by hand", "failed"), now_s=1.0)
    assert not +others.counts


def test_the_rest_is_bounded_and_a_success_ends_its_growth() -> None:
    attempts = begun()
    for _ in range(100):
        attempts.drop("n1", "GPU-a", now_s=0.0)
    assert attempts.next_s() == attempts.longest_rest_s
    attempts.begin(PARTITION, "moorage-1", [], now_s=4000.0)
    attempts.observe(shows("moorage-1", "done"), now_s=4000.0)
    attempts.observe(shows(), now_s=4100.0)
    attempts.drop("n1", "GPU-a", now_s=5000.0)
    assert attempts.next_s() == 5060.0


def test_an_attempt_that_no_agent_shows_is_withdrawn_after_a_minute() -> None:
    attempts = begun()
    assert attempts.observe(shows("another", "done", asked="moorage-1"), now_s=59.9) == []
    assert attempts.observe(shows("another", "done"), now_s=60.0) == [Withdraw("n1", "GPU-a", "moorage-1")]
    assert attempts.covered() == set()


def test_one_that_is_under_way_is_waited_for_longer() -> None:
    attempts = begun()
    assert attempts.observe(shows("moorage-1", "underway", asked="moorage-1"), now_s=599.0) == []
    withdrawn = attempts.observe(shows("moorage-1", "underway", asked="moorage-1"), now_s=600.0)
    assert withdrawn == [Withdraw("n1", "GPU-a", "moorage-1")]


def test_an_attempt_whose_node_is_gone_is_forgotten() -> None:
    attempts = begun()
    assert attempts.observe({}, now_s=1.0) == []
    assert (attempts.covered(), attempts.caps()) == (set(), {})


def test_what_the_agent_of_another_node_says_of_the_gpu_does_not_end_an_attempt() -> None:
    attempts = begun()
    other = MigNode(name="n2", rv="1", cards=(card("GPU-a", attempt="moorage-1", state="done"),))
    attempts.observe({**shows(asked="moorage-1"), "n2": other}, now_s=1.0)
    assert attempts.observe({**shows(asked="moorage-1"), "n2": other}, now_s=40.0) == []
    assert attempts.caps() == {"n1": {ONE: 1}}


@pytest.mark.parametrize("state", ["done", "refused", "underway"])
def test_what_another_node_shows_under_the_same_uuid_is_its_own(state: str) -> None:
    """A machine that joined under another name, or an agent that names a GPU which it does not have."""
    attempts = begun()
    other = MigNode(name="n2", rv="1", cards=(card("GPU-a", attempt="moorage-1", state=state),), asked=())
    seen = {**shows("", asked="moorage-1"), "n2": other}
    assert attempts.observe(seen, now_s=1.0) == []
    assert (attempts.covered(), attempts.busy(1.0)) == ({"uid-p"}, {("n1", "GPU-a")})
    attempts.begin(GpuPartition("n2", CUT, ("uid-q",)), "moorage-2", [], now_s=1.0)
    attempts.drop("n2", "GPU-a", now_s=1.0)
    assert attempts.covered() == {"uid-p"}
    attempts.observe({**shows("moorage-1", "done"), "n2": other}, now_s=2.0)
    attempts.observe({**shows("moorage-1", "done"), "n2": other}, now_s=32.0)
    assert (attempts.busy(61.0), attempts.busy(62.0)) == ({("n1", "GPU-a")}, set())


def test_a_scheduler_that_starts_waits_for_what_was_asked_before() -> None:
    attempts = Attempts()
    assert attempts.observe(shows(asked="moorage-1"), now_s=0.0) == []
    assert attempts.busy(0.0) == {("n1", "GPU-a")}
    assert attempts.observe(shows(asked="moorage-1"), now_s=60.0) == [Withdraw("n1", "GPU-a", "moorage-1")]


@pytest.mark.parametrize("asked", ["moorage-1", "by-hand"])
def test_what_goes_by_an_attempt_that_somebody_else_asked_for_does_not_count(asked: str) -> None:
    attempts = Attempts()
    layout = MigLayoutAsked("GPU-a", asked, (("2g.20gb", 0), ("1g.10gb", 2)))
    there = {"n1": MigNode(name="n1", rv="1", cards=(card("GPU-a", "1g@0", "1g@1!", "1g@2"),), asked=(layout,))}
    attempts.observe(there, now_s=0.0, there=lambda _: [(ONE, 5)])
    assert attempts.caps() == {"n1": {ONE: 3}}


def test_nothing_is_counted_out_on_a_node_whose_gpus_are_not_offered() -> None:
    attempts = Attempts()
    attempts.observe(shows(asked="by-hand"), now_s=0.0, there=lambda _: None)
    assert attempts.caps() == {}


def test_an_administrator_s_attempt_is_not_withdrawn() -> None:
    attempts = Attempts()
    attempts.observe(shows(asked="by-hand"), now_s=0.0)
    assert attempts.observe(shows(asked="by-hand"), now_s=60.0) == []
    assert attempts.busy(60.0) == {("n1", "GPU-a")}


def test_what_has_ended_is_not_taken_for_open() -> None:
    attempts = Attempts()
    attempts.observe(shows("moorage-1", "refused", asked="moorage-1"), now_s=0.0)
    assert attempts.busy(0.0) == set()
