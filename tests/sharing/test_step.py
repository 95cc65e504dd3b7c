from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gpu.attempts import Cause
from gpu.bind_request import PlannedDevice
from gpu.request import ContainerKind, ContainerRef, ContainerRequest, FractionAsk, GpuRequest, MemoryAsk
from gpu.translation import Cards, Translation
from sharing.failure import Failure
from sharing.outcome import BoundTold, absorb
from sharing.state import (
    DropRequest,
    Fence,
    Join,
    Joined,
    Leave,
    Phase,
    PostBinding,
    ReadPod,
    Renew,
    State,
    TellBound,
    Verify,
    World,
    WriteConfigMaps,
)
from sharing.step import Next, step
from tests.sharing import made
from tests.sharing.made import attempt, bound, joined, pod, reservation, state, world

ONE = attempt()
MAIN = ContainerRef(ContainerKind.REGULAR, 0, "main")
FAILURE = Failure(cause=Cause.DEVICE_TAKEN, detail="full")


def one(before: State, around: World) -> Next:
    (after,) = step([before], {before.attempt.id: around})
    return after


def kinds(move: Next) -> list[type]:
    return [type(action) for action in move.actions]


# --- PREPARE ---------------------------------------------------------------------------------------------------------


def test_an_attempt_joins_all_its_groups_at_once() -> None:
    two = attempt(groups=("g", "h"))
    assert one(state(two), World(pod=pod(two))).actions == (Join("g"), Join("h"))


def test_a_joined_group_is_not_joined_again() -> None:
    two = attempt(groups=("g", "h"))
    before = state(two, joined={"g": Joined("R-g", "10")})
    assert one(before, world(two)).actions == (Join("h"),)


@pytest.mark.parametrize("change", [{"phase": "Pending"}, {"uuid": ""}, {"alive": False}])
def test_a_device_that_is_not_known_yet_is_waited_for(change: Mapping[str, object]) -> None:
    held = msgspec.structs.replace(reservation("g", ONE), **change)
    before = state(joined=joined(ONE))
    assert one(before, world(reservations={"g": held})) == Next(before)


def test_a_learned_device_is_verified_before_anything_is_bound() -> None:
    assert one(state(joined=joined(ONE)), world(verified=False)).actions == (Verify("g"),)


def test_a_verification_of_another_device_of_the_same_reservation_does_not_count() -> None:
    around = world(verified=False)
    around = msgspec.structs.replace(around, verified=frozenset({("R-g", "GPU-other")}))
    assert one(state(joined=joined(ONE)), around).actions == (Verify("g"),)


def test_all_joined_and_verified_is_bound_at_the_version_that_was_joined() -> None:
    move = one(state(joined=joined(ONE)), world())
    (action,) = move.actions
    assert isinstance(action, PostBinding)
    assert action.rv == "10"
    assert [(d.group, d.reservation, d.uuid, d.nano) for d in action.grant.devices] == [
        ("g", "R-g", "GPU-g", made.HALF)
    ]


def test_a_pod_without_shares_is_bound_at_once() -> None:
    whole = attempt(groups=())
    assert kinds(one(state(whole), world(whole))) == [PostBinding]


def test_a_pod_that_was_never_seen_is_read_before_it_is_bound() -> None:
    whole = attempt(groups=())
    assert kinds(one(state(whole), World())) == [ReadPod]


def test_an_attempt_that_was_bound_before_a_crash_is_closed() -> None:
    move = one(state(), world(pod=bound()))
    assert move.state.phase is Phase.CLOSE
    assert move.actions == (DropRequest(),)


def test_a_pod_without_shares_that_stands_on_its_node_is_closed_whoever_bound_it() -> None:
    whole = attempt(groups=())
    assert one(state(whole), world(whole, pod=bound(whole))).state.phase is Phase.CLOSE


def test_a_pod_that_changed_before_its_first_entry_is_joined_at_its_new_version() -> None:
    move = one(state(), World(pod=pod(rv="12")))
    assert move.state.rv == "12"
    assert move.actions == (Join("g"),)


def test_a_view_from_before_the_decision_decides_nothing() -> None:
    late = pod(rv="9", gated=True, fenced=ONE.id)
    assert one(state(), World(pod=late)).actions == (Join("g"),)
    assert one(state(), World(pod=late)).state.rv == "10"


MEMORY = PlannedDevice("g", made.HALF, mem_mib=600)
MEMORY_REQUEST = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), (MemoryAsk(600),)),))


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"request_gone": True}, Cause.WITHDRAWN),
        ({"pod": None, "pod_deleted": True}, Cause.POD_GONE),
        ({"pod": pod(ended=True)}, Cause.POD_GONE),
        ({"pod": pod(deleting=True)}, Cause.POD_GONE),
        ({"pod": pod(node="node-2")}, Cause.BOUND_ELSEWHERE),
        ({"pod": bound(attempt("other"), uid=ONE.pod_uid)}, Cause.BOUND_ELSEWHERE),
        ({"pod": pod(fenced=ONE.id, rv="11")}, Cause.WITHDRAWN),
        ({"pod": pod(gated=True)}, Cause.REQUEST_CHANGED),
        ({"pod": pod(request=made.request(nano=1))}, Cause.REQUEST_CHANGED),
        ({"pod": pod(request=None)}, Cause.REQUEST_CHANGED),
        ({"lost": frozenset({"g"})}, Cause.RESERVATION_LOST),
        ({"reservations": {"g": reservation("g", ONE, uid="R-later")}}, Cause.RESERVATION_LOST),
        ({"reservations": {"g": reservation("g", ONE, deleting=True)}}, Cause.RESERVATION_LOST),
        ({"reservations": {"g": reservation("g", ONE, book=None)}}, Cause.RESERVATION_LOST),
        ({"reservations": {"g": reservation("g")}}, Cause.RESERVATION_LOST),
        ({"reservations": {"g": reservation("g", attempt(id="another"))}}, Cause.RESERVATION_LOST),
        ({"reservations": {"g": reservation("g", ONE, phase="Failed")}}, Cause.RESERVATION_FAILED),
        ({"reservations": {"g": reservation("g", ONE, phase="Pending")}, "late": True}, Cause.RESERVATION_SILENT),
        ({"reservations": {"g": None}, "late": True}, Cause.RESERVATION_SILENT),
    ],
)
def test_a_hopeless_attempt_drops_its_request_first(change: Mapping[str, object], cause: Cause) -> None:
    around = msgspec.structs.replace(world(), **change)
    move = one(state(joined=joined(ONE)), around)
    assert move.state.failure is not None
    assert move.state.failure.cause is cause
    assert move.actions == (DropRequest(),)


def test_a_card_smaller_than_the_memory_asked_fails_the_attempt() -> None:
    asks = attempt(devices=(MEMORY,))
    for card_mib, is_enough in [(1200, True), (1199, False), (0, True)]:
        held = reservation("g", asks, mem_mib=card_mib)
        around = world(asks, pod=pod(request=MEMORY_REQUEST), reservations={"g": held})
        failure = one(state(asks, joined=joined(asks)), around).state.failure
        assert (failure is None) is is_enough
        if failure is not None:
            assert failure.cause is Cause.CARD_TOO_SMALL


@pytest.mark.parametrize(
    ("ask", "cards", "will_do"),
    [
        (FractionAsk(made.HALF, index=2), Cards(), True),
        (FractionAsk(made.HALF, index=3), Cards(), False),
        (FractionAsk(made.HALF), Cards(uuids=("GPU-x", "GPU-g")), True),
        (FractionAsk(made.HALF), Cards(uuids=("GPU-x",)), False),
        (FractionAsk(made.HALF), Cards(not_uuids=("GPU-g",)), False),
        (FractionAsk(made.HALF, index=2), Cards(not_uuids=("GPU-x",)), True),
    ],
)
def test_a_device_that_the_pod_does_not_name_fails_the_attempt_before_anything_is_bound(
    ask: FractionAsk, cards: Cards, will_do: bool
) -> None:
    request = GpuRequest((ContainerRequest(MAIN, (ask,)),))
    asks = pod(request=request, recorded=Translation(dialect="hami", request=request, cards=cards))
    around = world(pod=asks, reservations={"g": reservation("g", ONE, index=2)})
    for seen, read in [(asks, None), (None, asks)]:  # by the watch, or by the read before the Binding
        before = state(joined=joined(ONE), pod=read)
        move = one(before, msgspec.structs.replace(around, pod=seen))
        assert (move.state.failure is None) is will_do
        if move.state.failure is not None:
            assert move.state.failure.cause is Cause.OTHER_DEVICE
            assert not any(isinstance(action, PostBinding) for action in move.actions)


@pytest.mark.parametrize(
    ("enforces", "driver_caps", "is_bound"),
    [
        (("memory-cap=driver",), True, True),
        (("memory-cap", "memory-cap/hard"), True, False),
        ((), True, False),
        ((), False, True),
        (None, True, True),  # the node is not known: it may have the word
    ],
)
def test_a_node_that_lost_its_caps_by_the_driver_gets_no_pod_whose_containers_read_them(
    enforces: tuple[str, ...] | None, *, driver_caps: bool, is_bound: bool
) -> None:
    request = GpuRequest((ContainerRequest(MAIN, (FractionAsk(made.HALF),)),))
    translation = Translation(dialect="hami", request=request, driver_caps=driver_caps)
    asks = pod(request=request, recorded=translation)
    around = world(pod=asks, reservations={"g": reservation("g", ONE)}, enforces=enforces)
    for phase in (Phase.PREPARE, Phase.BIND):
        for seen, read in [(asks, None), (None, asks)]:
            move = one(state(joined=joined(ONE), pod=read, phase=phase), msgspec.structs.replace(around, pod=seen))
            assert any(isinstance(action, PostBinding) for action in move.actions) is is_bound
            assert (move.state.failure is None) is is_bound
            if move.state.failure is not None:
                assert move.state.failure.cause is Cause.NOT_ENFORCED


@pytest.mark.parametrize("charged", [333_333_333, 333_333_334], ids=["this version", "an older one, rounded up"])
def test_a_memory_ask_is_bound_whichever_way_it_was_charged_and_its_grant_says_the_lower_charge(charged: int) -> None:
    asks = attempt(devices=(PlannedDevice("g", charged, mem_mib=8192),))
    request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), (MemoryAsk(8192),)),))
    held = reservation("g", asks, mem_mib=24576)
    (action,) = one(
        state(asks, joined=joined(asks)), world(asks, pod=pod(request=request), reservations={"g": held})
    ).actions
    assert isinstance(action, PostBinding)
    assert [device.nano for device in action.grant.devices] == [333_333_333]


def test_a_disputed_device_is_looked_at_again_until_the_time_is_over() -> None:
    disputed = state(joined=joined(ONE), disputed="device GPU-g is also held by x")
    assert one(disputed, world(verified=False)).actions == (Verify("g"),)
    failed = one(disputed, world(verified=False, late=True)).state.failure
    assert failed == Failure(cause=Cause.DEVICE_CLAIMED, detail="device GPU-g is also held by x")


@pytest.mark.parametrize(
    ("asked_mib", "card_mib"), [(0, 24576), (8192, 0)], ids=["a share was asked", "the card's memory is not known"]
)
def test_what_was_joined_for_is_granted_where_memory_can_not_be_compared(asked_mib: int, card_mib: int) -> None:
    asks = attempt(devices=(PlannedDevice("g", made.HALF, mem_mib=asked_mib),))
    ask = MemoryAsk(asked_mib) if asked_mib else FractionAsk(made.HALF)
    request = GpuRequest((ContainerRequest(ContainerRef(ContainerKind.REGULAR, 0), (ask,)),))
    held = reservation("g", asks, mem_mib=card_mib)
    around = world(asks, pod=pod(request=request), reservations={"g": held})
    (action,) = one(state(asks, joined=joined(asks)), around).actions
    assert isinstance(action, PostBinding)
    assert [device.nano for device in action.grant.devices] == [made.HALF]


def test_entries_at_two_versions_are_settled_before_the_binding() -> None:
    """A crash between two renewals leaves them behind: the Binding is for one version, and only that one is fenced."""
    two = attempt(groups=("g", "h"))
    begun = state(two, joined={"g": Joined("R-g", "10"), "h": Joined("R-h", "12")})
    assert kinds(one(begun, world(two))) == [ReadPod]


def test_being_late_does_no_harm_to_who_is_ready() -> None:
    assert kinds(one(state(joined=joined(ONE)), world(late=True))) == [PostBinding]


# --- BIND, SETTLE, RENEW ---------------------------------------------------------------------------------------------


def test_config_maps_are_written_before_the_binding_of_who_reads_them() -> None:
    around = world(pod=pod(config_maps="prefix"))
    before = state(joined=joined(ONE))
    (action,) = one(before, around).actions
    assert isinstance(action, WriteConfigMaps)
    assert action.prefix == "prefix"
    assert kinds(one(msgspec.structs.replace(before, has_config_maps=True), around)) == [PostBinding]


@pytest.mark.parametrize(
    "seen", [pod(rv="12"), pod(deleting=True), pod(node="node-2"), bound(), None, pod(request=None)]
)
def test_before_a_binding_that_can_not_land_the_pod_is_read(seen: object) -> None:
    move = one(state(joined=joined(ONE), phase=Phase.BIND), world(pod=seen))
    assert (move.state.phase, move.actions) == (Phase.SETTLE, (ReadPod(),))


def test_the_newer_of_the_cached_and_the_read_pod_counts() -> None:
    read = state(joined=joined(ONE, "12"), phase=Phase.BIND, rv="12", pod=pod(rv="12"))
    assert kinds(one(read, world(pod=pod(rv="10", gated=True)))) == [PostBinding]


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"alive": False}, None),
        ({"phase": "Failed"}, DropRequest),
        ({"uuid": "GPU-other"}, Verify),
        ({"deleting": True}, DropRequest),
    ],
)
def test_a_device_that_changed_before_the_binding_is_prepared_again(
    change: Mapping[str, object], kind: type | None
) -> None:
    held = msgspec.structs.replace(reservation("g", ONE), **change)
    around = world(reservations={"g": held})
    assert kinds(one(state(joined=joined(ONE), phase=Phase.BIND), around)) == ([kind] if kind else [])


def test_after_a_binding_without_answer_only_a_read_goes_on() -> None:
    assert one(state(joined=joined(ONE), phase=Phase.SETTLE), world(pod=bound())).actions == (ReadPod(),)


def test_only_entries_at_another_version_are_renewed() -> None:
    two = attempt(groups=("g", "h"))
    before = state(two, rv="12", phase=Phase.RENEW, joined={"g": Joined("R-g", "12"), "h": Joined("R-h", "10")})
    assert one(before, world(two, pod=pod(two, rv="12"))).actions == (Renew("h", "10", "12"),)


def test_nothing_left_to_renew_goes_on_to_the_binding() -> None:
    before = state(rv="12", phase=Phase.RENEW, joined=joined(ONE, "12"))
    assert kinds(one(before, world(pod=pod(rv="12")))) == [PostBinding]


def test_entries_that_an_earlier_incarnation_half_renewed_are_settled_before_binding() -> None:
    two = attempt(groups=("g", "h"))
    before = state(two, rv="12", joined={"g": Joined("R-g", "12"), "h": Joined("R-h", "10")})
    assert one(before, world(two, pod=pod(two, rv="12"))).actions == (ReadPod(),)


def test_an_entry_found_at_an_older_version_is_what_the_binding_must_use_or_renew() -> None:
    before = state(rv="12", joined=joined(ONE, "10"))
    move = one(before, world(pod=pod(rv="12")))
    assert (move.state.phase, move.actions) == (Phase.SETTLE, (ReadPod(),))


# --- withdrawing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        (Phase.DROP, (DropRequest(),)),
        (Phase.FENCE, (Fence("10", FAILURE),)),
        (Phase.LEAVE, (Leave("g", "10"),)),
        (Phase.END, ()),
    ],
)
def test_a_failed_attempt_drops_fences_and_leaves_in_this_order(phase: Phase, expected: tuple[object, ...]) -> None:
    assert one(state(joined=joined(ONE), phase=phase, failure=FAILURE), world()).actions == expected


def test_who_has_nothing_to_leave_ends() -> None:
    move = one(state(phase=Phase.LEAVE, failure=FAILURE), world())
    assert move == Next(state(phase=Phase.END, failure=FAILURE))


# --- gangs -----------------------------------------------------------------------------------------------------------


def unit(states: list[State], worlds: list[World]) -> list[Next]:
    return step(states, {s.attempt.id: w for s, w in zip(states, worlds, strict=True)})


def ready(members: int = 3) -> tuple[list[State], list[World]]:
    attempts = made.gang(members)
    return [state(a, joined=joined(a)) for a in attempts], [world(a) for a in attempts]


def test_nobody_is_bound_before_all_are_joined_and_verified() -> None:
    states, worlds = ready()
    assert [kinds(move) for move in unit(states, worlds)] == [[PostBinding]] * 3
    for missing in (
        msgspec.structs.replace(worlds[1], verified=frozenset()),
        msgspec.structs.replace(worlds[1], reservations={"g1": None}),
    ):
        moves = unit(states, [worlds[0], missing, worlds[2]])
        assert PostBinding not in {kind for move in moves for kind in kinds(move)}
    moves = unit([states[0], state(states[1].attempt), states[2]], worlds)
    assert [kinds(move) for move in moves] == [[], [Join], []]


def test_a_gang_that_is_not_complete_waits_until_it_is_late() -> None:
    states, worlds = ready()
    assert unit(states[:2], worlds[:2]) == [Next(s) for s in states[:2]]
    late = [msgspec.structs.replace(w, late=True) for w in worlds[:2]]
    assert [move.state.failure for move in unit(states[:2], late)] == [Failure(cause=Cause.GANG_LATE)] * 2
    assert [move.state.failure for move in unit(states[:2], [worlds[0], late[1]])] == [
        Failure(cause=Cause.GANG_LATE)
    ] * 2


def test_a_gang_with_one_failure_is_withdrawn_whole() -> None:
    states, worlds = ready()
    worlds[1] = msgspec.structs.replace(worlds[1], lost=frozenset({"g1"}))
    causes = [move.state.failure.cause for move in unit(states, worlds) if move.state.failure]
    assert causes == [Cause.GANG_FAILED, Cause.RESERVATION_LOST, Cause.GANG_FAILED]


def test_no_request_goes_before_all_are_bound() -> None:
    states, worlds = ready()
    phases = [Phase.CLOSE, Phase.SETTLE, Phase.CLOSE]
    states = [msgspec.structs.replace(s, phase=phase) for s, phase in zip(states, phases, strict=True)]
    assert [kinds(move) for move in unit(states, worlds)] == [[], [ReadPod], []]
    states[1] = msgspec.structs.replace(states[1], phase=Phase.CLOSE)
    assert [kinds(move) for move in unit(states, worlds)] == [[DropRequest]] * 3


@pytest.mark.parametrize("changes", [{"config_maps": "p-shared-gpu"}, {"fenced": "earlier"}], ids=["KAI's", "fenced"])
def test_who_reads_the_condition_is_told_once_that_the_pod_is_bound(changes: dict[str, Any]) -> None:
    told = one(state(phase=Phase.CLOSE), world(pod=bound(**changes)))
    assert told.actions == (TellBound(),)
    after = absorb(told.state, BoundTold())
    assert one(after, world(pod=bound(**changes))).actions == (DropRequest(),)


def test_after_a_crash_in_the_middle_the_rest_of_the_gang_follows_the_bound_ones() -> None:
    states, worlds = ready()
    states = [state(s.attempt) for s in states]
    worlds[0] = msgspec.structs.replace(worlds[0], pod=bound(states[0].attempt))
    moves = unit(states, worlds)
    assert [kinds(move) for move in moves] == [[], [Join], [Join]]
    again = [msgspec.structs.replace(m.state, joined=joined(m.state.attempt)) for m in moves]
    assert [kinds(move) for move in unit(again, worlds)] == [[], [PostBinding], [PostBinding]]


def test_a_member_that_fails_when_others_are_bound_does_not_take_them_down() -> None:
    states, worlds = ready()
    states[0] = msgspec.structs.replace(states[0], phase=Phase.CLOSE)
    worlds[1] = msgspec.structs.replace(worlds[1], lost=frozenset({"g1"}))
    moves = unit(states, worlds)
    assert [kinds(move) for move in moves] == [[], [DropRequest], [PostBinding]]
    assert [move.state.failure is None for move in moves] == [True, False, True]


def test_a_member_whose_request_went_with_all_others_bound_is_no_hindrance() -> None:
    """The gang had been bound whole, and a crash came between two deletions of its requests."""
    states, worlds = ready()
    states, worlds = [state(s.attempt) for s in states[1:]], worlds[1:]
    worlds = [msgspec.structs.replace(w, pod=bound(s.attempt)) for s, w in zip(states, worlds, strict=True)]
    assert [kinds(move) for move in unit(states, worlds)] == [[DropRequest]] * 2


def test_an_empty_handed_member_of_a_gang_waits_with_the_others() -> None:
    states, worlds = ready(2)
    whole = attempt("w", groups=(), plan="plan", members=3)
    states.append(state(whole))
    worlds.append(world(whole))
    assert [kinds(move) for move in unit(states, worlds)] == [[PostBinding]] * 3
    worlds[0] = msgspec.structs.replace(worlds[0], verified=frozenset())
    assert [kinds(move) for move in unit(states, worlds)] == [[Verify], [], []]


# --- rest ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("failure", [None, FAILURE])
@pytest.mark.parametrize("change", [{}, {"pod": None}, {"late": True}, {"reservations": {}}, {"pod": bound()}])
def test_asking_twice_gives_the_same_answer(
    phase: Phase, failure: Failure | None, change: Mapping[str, object]
) -> None:
    around = msgspec.structs.replace(world(), **change)
    once = one(state(joined=joined(ONE), phase=phase, failure=failure), around)
    assert one(once.state, around) == once


def test_a_device_that_was_disputed_and_is_verified_since_is_bound_though_the_time_is_over() -> None:
    verified = state(joined=joined(ONE), disputed="device GPU-g is also held by x")
    moved = one(verified, world(late=True))
    assert moved.state.failure is None
    assert [type(action) for action in moved.actions] == [PostBinding]


def test_a_device_that_nobody_disputes_is_verified_though_the_time_is_over() -> None:
    moved = one(state(joined=joined(ONE)), world(verified=False, late=True))
    assert moved.state.failure is None
    assert moved.actions == (Verify("g"),)
