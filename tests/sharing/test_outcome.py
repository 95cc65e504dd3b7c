from __future__ import annotations

import pytest

from gpu.attempts import Cause
from sharing.failure import Failure
from sharing.outcome import (
    MAX_TRIES,
    BindingAccepted,
    BindingNotAccepted,
    ConfigMapsWritten,
    Disputed,
    EntryGone,
    Failed,
    Fenced,
    FenceMissed,
    JoinedAs,
    Left,
    Outcome,
    PodRead,
    Renewed,
    RequestDropped,
    Verified,
    absorb,
)
from sharing.pods import PodView
from sharing.state import Joined, Phase, State
from tests.sharing import made
from tests.sharing.made import attempt, bound, joined, pod, state

ONE = attempt()
TWO = attempt(groups=("g", "h"))
FAILURE = Failure(cause=Cause.DEVICE_TAKEN, detail="full")
SETTLING = state(joined=joined(ONE), phase=Phase.SETTLE)


def failed(cause: Cause, phase: Phase = Phase.SETTLE) -> State:
    return state(joined=joined(ONE), phase=phase, failure=Failure(cause=cause))


def test_a_join_is_remembered_with_the_version_that_stands_in_the_book() -> None:
    assert absorb(state(), JoinedAs("g", "R-g", "7")).joined == {"g": Joined("R-g", "7")}


def test_the_first_failure_is_the_one_that_is_told() -> None:
    once = absorb(state(), Failed(FAILURE))
    assert (once.phase, once.failure) == (Phase.DROP, FAILURE)
    assert absorb(once, Failed(Failure(cause=Cause.REFUSED))) == once


def test_a_join_that_is_answered_after_another_failed_will_be_left() -> None:
    after = absorb(absorb(state(TWO), Failed(FAILURE)), JoinedAs("h", "R-h", "10"))
    assert after.phase is Phase.DROP
    assert set(after.joined) == {"h"}


def test_verification_changes_only_the_world_but_a_dispute_is_remembered() -> None:
    assert absorb(state(), Verified("g")) == state()
    assert absorb(state(), Disputed("g", "held by x")).disputed == "held by x"


def test_config_maps_are_written_once() -> None:
    assert absorb(state(), ConfigMapsWritten()).has_config_maps


@pytest.mark.parametrize(("rv", "stand"), [("10", True), ("12", False)])
def test_config_maps_hold_for_the_version_of_the_pod_that_they_name(rv: str, stand: bool) -> None:
    written = state(joined=joined(ONE), phase=Phase.SETTLE, has_config_maps=True)
    assert absorb(written, PodRead(pod(rv=rv))).has_config_maps is stand
    assert not absorb(SETTLING, PodRead(pod(rv=rv))).has_config_maps


def test_reads_are_counted_so_that_they_grow_rarer() -> None:
    assert absorb(state(joined=joined(ONE), phase=Phase.SETTLE, reads=3), PodRead(pod())).reads == 4


def test_an_accepted_binding_is_the_end_of_the_work() -> None:
    assert absorb(state(phase=Phase.BIND), BindingAccepted()).phase is Phase.CLOSE


def test_a_binding_without_a_clear_yes_is_settled_by_a_read() -> None:
    after = absorb(state(joined=joined(ONE), phase=Phase.BIND), BindingNotAccepted("409"))
    assert (after.phase, after.tries) == (Phase.SETTLE, 1)


def test_a_binding_that_is_refused_again_and_again_is_given_up() -> None:
    after = absorb(state(phase=Phase.BIND, tries=MAX_TRIES - 1), BindingNotAccepted("no"))
    assert (after.phase, after.failure) == (Phase.DROP, Failure(cause=Cause.REFUSED, detail="no"))


@pytest.mark.parametrize(
    ("read", "phase", "rv", "cause"),
    [
        (bound(), Phase.CLOSE, "10", None),
        (pod(), Phase.BIND, "10", None),
        (pod(rv="12"), Phase.RENEW, "12", None),
        (None, Phase.DROP, "10", Cause.POD_GONE),
        (pod(uid="later"), Phase.DROP, "10", Cause.POD_GONE),
        (pod(deleting=True), Phase.DROP, "10", Cause.POD_GONE),
        (pod(ended=True), Phase.DROP, "10", Cause.POD_GONE),
        (pod(node="node-2"), Phase.DROP, "10", Cause.BOUND_ELSEWHERE),
        (pod(rv="12", fenced=ONE.id), Phase.DROP, "10", Cause.WITHDRAWN),
        (pod(rv="12", fenced="later", fenced_before=(ONE.id,)), Phase.DROP, "10", Cause.WITHDRAWN),
        (pod(rv="12", fenced="earlier"), Phase.RENEW, "12", None),
        (pod(rv="12", gated=True), Phase.DROP, "10", Cause.REQUEST_CHANGED),
        (pod(rv="12", request=made.request(2)), Phase.DROP, "10", Cause.REQUEST_CHANGED),
    ],
)
def test_a_read_settles_a_binding(read: PodView | None, phase: Phase, rv: str, cause: Cause | None) -> None:
    after = absorb(SETTLING, PodRead(read))
    assert (after.phase, after.rv) == (phase, rv)
    assert (after.failure.cause if after.failure else None) is cause


def test_a_pod_without_shares_is_not_renewed_but_bound_at_its_new_version() -> None:
    whole = attempt(groups=())
    after = absorb(state(whole, phase=Phase.SETTLE), PodRead(pod(whole, rv="12")))
    assert (after.phase, after.rv) == (Phase.BIND, "12")


def test_all_entries_are_renewed_before_the_binding() -> None:
    before = state(TWO, rv="12", phase=Phase.RENEW, joined=joined(TWO))
    half = absorb(before, Renewed("g", "12"))
    assert half.phase is Phase.RENEW
    assert absorb(half, Renewed("h", "12")).phase is Phase.BIND


@pytest.mark.parametrize("order", [0, 1])
def test_a_renewal_beside_a_lost_entry_does_not_bring_the_attempt_back(order: int) -> None:
    after = state(TWO, rv="12", phase=Phase.RENEW, joined=joined(TWO))
    answers: list[Outcome] = [EntryGone("h"), Renewed("g", "12")]
    for answer in answers if order else reversed(answers):
        after = absorb(after, answer)
    assert after.phase is Phase.DROP
    assert after.failure is not None
    assert after.joined == {"g": Joined("R-g", "12")}


@pytest.mark.parametrize(
    ("cause", "phase"),
    [
        (Cause.DEVICE_TAKEN, Phase.FENCE),
        (Cause.WITHDRAWN, Phase.FENCE),
        (Cause.POD_GONE, Phase.SETTLE),
        (Cause.BOUND_ELSEWHERE, Phase.SETTLE),
    ],
)
def test_after_the_request_the_fence_unless_the_pod_must_be_read_first(cause: Cause, phase: Phase) -> None:
    assert absorb(failed(cause, Phase.DROP), RequestDropped()).phase is phase


def test_without_failure_the_request_is_the_end() -> None:
    assert absorb(state(phase=Phase.CLOSE), RequestDropped()).phase is Phase.END


def test_a_fence_lets_the_entries_go_and_a_missed_one_is_settled() -> None:
    before = failed(Cause.DEVICE_TAKEN, Phase.FENCE)
    assert absorb(before, Fenced()).phase is Phase.LEAVE
    assert absorb(before, FenceMissed()).phase is Phase.SETTLE


@pytest.mark.parametrize(
    ("cause", "read", "phase", "left"),
    [
        # Our late Binding landed after all.
        (Cause.DEVICE_TAKEN, bound(), Phase.CLOSE, {"g"}),
        # Gone: it may have been bound by us, and run; the collector judges its entries.
        (Cause.POD_GONE, None, Phase.LEAVE, set()),
        (Cause.WITHDRAWN, None, Phase.LEAVE, set()),
        # Bound by others, to the node alone or to this very group.
        (Cause.BOUND_ELSEWHERE, pod(node="node-2"), Phase.LEAVE, {"g"}),
        (Cause.BOUND_ELSEWHERE, pod(node="node-1", groups=("g",)), Phase.LEAVE, set()),
        # Unbound for ever.
        (Cause.POD_GONE, pod(deleting=True), Phase.LEAVE, {"g"}),
        (Cause.WITHDRAWN, pod(rv="12", fenced=ONE.id), Phase.LEAVE, {"g"}),
        # Unbound: at our version a Binding may land; at another the fence only tells why.
        (Cause.WITHDRAWN, pod(rv="10"), Phase.FENCE, {"g"}),
        (Cause.WITHDRAWN, pod(rv="12"), Phase.LEAVE, {"g"}),
        (Cause.DEVICE_TAKEN, pod(rv="12"), Phase.FENCE, {"g"}),
        (Cause.POD_GONE, pod(rv="10", ended=True), Phase.FENCE, {"g"}),
    ],
)
def test_which_entries_of_a_failed_attempt_are_ours_to_take_out(
    cause: Cause, read: PodView | None, phase: Phase, left: set[str]
) -> None:
    after = absorb(failed(cause), PodRead(read))
    assert after.phase is phase
    assert set(after.joined) == left
    assert (after.failure is None) is (phase is Phase.CLOSE)


def test_a_missed_fence_is_repeated_at_the_version_that_was_read() -> None:
    assert absorb(failed(Cause.DEVICE_TAKEN), PodRead(pod(rv="12"))).rv == "12"


def test_a_left_group_is_forgotten() -> None:
    assert set(absorb(state(TWO, joined=joined(TWO)), Left("g")).joined) == {"h"}
