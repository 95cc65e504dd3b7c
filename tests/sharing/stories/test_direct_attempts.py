"""Direct attempts: the scheduler's own, without a BindRequest, on devices that are known and verified already."""

from __future__ import annotations

import msgspec
import pytest

from gpu.attempts import Cause
from sharing import outcome
from sharing.failure import Failure
from sharing.outcome import MAX_TRIES, absorb
from sharing.pods import PodView
from sharing.state import Fence, Join, Leave, Phase, PostBinding, ReadPod, Renew, State, World
from sharing.step import step
from tests.sharing.made import HALF, attempt, bound, gang, joined, pod, request, reservation, state, world

ONE = attempt(is_direct=True)
TWO = attempt(groups=("g", "h"), is_direct=True)
MEMBER = attempt(is_direct=True, plan="plan", members=2)
ALL_WELL = world(ONE, late=True)


def walked(one: State, seen: World | None = None) -> tuple[Phase, tuple[object, ...]]:
    (move,) = step([one], {one.attempt.id: seen or world(one.attempt, late=True)})
    return move.state.phase, move.actions


def settling(**changes: object) -> State:
    """One Binding was posted, and the pod is read now."""
    made = changes.pop("attempt", ONE)
    assert isinstance(made, type(ONE))
    return state(made, joined=joined(made), phase=Phase.SETTLE, tries=1, refused="no", **changes)


def test_a_direct_attempt_joins_all_its_books_and_then_posts_its_binding_at_the_version_of_its_entries() -> None:
    assert walked(state(TWO)) == (Phase.PREPARE, (Join("g"), Join("h")))
    half_way = state(TWO, joined={"g": joined(TWO)["g"]})
    assert walked(half_way) == (Phase.PREPARE, (Join("h"),))
    phase, (posted,) = walked(state(TWO, joined=joined(TWO)))
    assert phase is Phase.BIND
    assert isinstance(posted, PostBinding)
    assert (posted.rv, [device.uuid for device in posted.grant.devices]) == ("10", ["GPU-g", "GPU-h"])


def test_a_direct_attempt_without_shares_posts_at_once_and_ends_with_its_binding() -> None:
    plain = attempt(groups=(), is_direct=True)
    phase, actions = walked(state(plain))
    assert (phase, [type(action) for action in actions]) == (Phase.BIND, [PostBinding])
    assert absorb(state(plain, phase=Phase.BIND), outcome.BindingAccepted()).phase is Phase.END


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(world(ONE, verified=False, late=True), id="not verified"),
        pytest.param(
            world(ONE, late=True, reservations={"g": reservation("g", ONE, uuid="GPU-other")}), id="another device"
        ),
        pytest.param(
            world(ONE, late=True, reservations={"g": reservation("g", ONE, uid="R-other")}), id="another reservation"
        ),
        pytest.param(world(ONE, late=True, reservations={}), id="no reservation"),
    ],
)
def test_a_device_that_is_not_the_one_that_was_verified_ends_a_direct_attempt(seen: World) -> None:
    (move,) = step([state(ONE, joined=joined(ONE))], {ONE.id: seen})
    assert move.state.failure == Failure(cause=Cause.RESERVATION_LOST, detail="the device changed")
    assert (move.state.phase, move.actions) == (Phase.LEAVE, (Leave("g", "10"),))


def test_a_join_that_is_refused_leaves_the_other_books_without_a_fence() -> None:
    some = state(TWO, joined={"g": joined(TWO)["g"]})
    after = absorb(some, outcome.Failed(Failure(cause=Cause.DEVICE_TAKEN)))
    assert walked(after) == (Phase.LEAVE, (Leave("g", "10"),))


def test_one_member_without_room_ends_its_gang_before_anybody_is_bound() -> None:
    first, second = (state(one) for one in gang(2, is_direct=True))
    first = absorb(first, outcome.JoinedAs("g0", "R-g0", "10"))
    second = absorb(second, outcome.Failed(Failure(cause=Cause.DEVICE_TAKEN)))
    seen = {one.attempt.id: world(one.attempt, late=True) for one in (first, second)}
    moves = step([first, second], seen)
    assert [move.state.failure.cause for move in moves if move.state.failure] == [Cause.GANG_FAILED, Cause.DEVICE_TAKEN]
    assert [move.actions for move in moves] == [(Leave("g0", "10"),), ()]


CHANGED = pod(ONE, rv="12")


@pytest.mark.parametrize(
    ("before", "found", "phase", "cause"),
    [
        pytest.param(settling(may_land=True), bound(ONE), Phase.END, None, id="bound by us"),
        pytest.param(settling(may_land=True), pod(ONE), Phase.BIND, None, id="unbound settles nothing"),
        pytest.param(settling(), pod(ONE), Phase.LEAVE, Cause.REFUSED, id="a clear refusal is not asked for again"),
        pytest.param(
            msgspec.structs.replace(settling(may_land=True), tries=MAX_TRIES),
            pod(ONE), Phase.FENCE, Cause.REFUSED, id="no answer again and again",
        ),
        pytest.param(settling(may_land=True), CHANGED, Phase.LEAVE, Cause.REQUEST_CHANGED, id="changed, alone"),
        pytest.param(settling(attempt=MEMBER), CHANGED, Phase.RENEW, None, id="changed, of a gang"),
        pytest.param(
            settling(attempt=MEMBER), pod(ONE, rv="12", request=request(nano=HALF // 2)),
            Phase.LEAVE, Cause.REQUEST_CHANGED, id="of a gang, and asks something else",
        ),
        pytest.param(
            settling(attempt=MEMBER), pod(ONE, rv="12", fenced=MEMBER.id),
            Phase.LEAVE, Cause.WITHDRAWN, id="of a gang, and fenced",
        ),
        pytest.param(settling(may_land=True), pod(ONE, rv="12", deleting=True), Phase.LEAVE, Cause.POD_GONE, id="gone"),
    ],
)  # fmt: skip
def test_a_quorum_read_says_how_a_direct_attempt_goes_on(
    before: State, found: PodView, phase: Phase, cause: Cause | None
) -> None:
    after = absorb(before, outcome.PodRead(found))
    assert (after.phase, after.failure.cause if after.failure else None) == (phase, cause)


def test_the_entries_of_a_pod_that_is_gone_or_bound_in_the_same_groups_are_left_to_the_collector() -> None:
    for found in (None, bound(attempt("other"), uid=ONE.pod_uid)):
        after = absorb(settling(may_land=True), outcome.PodRead(found))
        assert walked(after) == (Phase.END, ())


def test_a_changed_member_moves_its_entries_and_binds_at_the_new_version() -> None:
    after = absorb(settling(attempt=MEMBER, may_land=True), outcome.PodRead(CHANGED))
    assert not after.may_land
    assert walked(after) == (Phase.RENEW, (Renew("g", "10", "12"),))
    phase, (posted,) = walked(absorb(after, outcome.Renewed("g", "12")))
    assert phase is Phase.BIND
    assert isinstance(posted, PostBinding)
    assert posted.rv == "12"


def test_a_changed_member_that_lost_one_of_two_places_leaves_both_at_the_versions_where_they_stand() -> None:
    made = msgspec.structs.replace(TWO, plan="plan", members=2)
    after = absorb(settling(attempt=made), outcome.PodRead(pod(made, rv="12")))
    after = absorb(absorb(after, outcome.Failed(Failure(cause=Cause.REQUEST_CHANGED))), outcome.Renewed("g", "12"))
    assert walked(after) == (Phase.LEAVE, (Leave("g", "12"), Leave("h", "10")))


def test_a_fence_that_missed_is_settled_by_reading_and_the_attempt_never_posts_again() -> None:
    giving_up = absorb(msgspec.structs.replace(settling(may_land=True), tries=MAX_TRIES), outcome.PodRead(pod(ONE)))
    phase, (fence,) = walked(giving_up)
    assert (phase, fence) == (Phase.FENCE, Fence("10", Failure(cause=Cause.REFUSED, detail="no")))
    missed = absorb(giving_up, outcome.FenceMissed())
    assert walked(missed) == (Phase.SETTLE, (ReadPod(),))
    assert absorb(missed, outcome.PodRead(bound(ONE))).phase is Phase.END
    assert absorb(missed, outcome.PodRead(CHANGED)).phase is Phase.LEAVE
    assert absorb(missed, outcome.PodRead(pod(ONE))).phase is Phase.FENCE


def test_a_pod_that_is_gone_before_the_first_join_is_not_joined_for() -> None:
    phase, actions = walked(state(ONE), msgspec.structs.replace(ALL_WELL, pod=None, pod_deleted=True))
    assert (phase, actions) == (Phase.END, ())
