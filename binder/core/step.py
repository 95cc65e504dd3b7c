"""The binder's step function: attempts x world -> next actions. Pure; it walks the steps of docs/design/protocol.md.

``step`` looks at all attempts that bind together (one, or a gang's) and says what to write or read next for each.
The shell carries that out, feeds the answers back (binder/core/outcome.py) and asks again; it also asks again when
the world changed. An attempt without actions waits.

Gangs: nobody is bound before all members have joined and verified their devices, and no BindRequest goes away before
all are bound, so that after a crash the whole gang is seen again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from binder.core import outcome
from binder.core.failure import Cause, Failure, smaller_than_asked
from binder.core.state import (
    Action,
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
    Verify,
    World,
    WriteConfigMaps,
)
from gpu.grant import DeviceGrant, Grant
from gpu.handover import PlannedDevice
from gpu.request import MemoryAsk, charge_nano
from gpu.reservation import Reservation


class Next(msgspec.Struct, frozen=True, gc=False):
    """A state and what to do for it now. Actions of one attempt may be carried out side by side."""

    state: State
    actions: tuple[Action, ...] = ()


def step(states: Sequence[State], worlds: Mapping[str, World]) -> list[Next]:
    """Return what to do next for the attempts of one unit; ``worlds`` by attempt id."""
    moves = [_prepare(state, worlds[state.attempt.id]) for state in states]
    moves = _hold_gang_together(moves, worlds)
    return [_act(move, worlds[move.state.attempt.id], moves) for move in moves]


def _prepare(state: State, world: World) -> Next:
    """Walk one attempt through PREPARE; other phases pass unchanged."""
    if state.phase is not Phase.PREPARE:
        return Next(state)
    if world.pod is not None and world.pod.was_bound_by(state.attempt.id):
        return Next(msgspec.structs.replace(state, pod=world.pod, phase=Phase.CLOSE))
    if (failure := _hopeless(state, world)) is not None:
        return Next(outcome.fail(state, failure))
    missing = tuple(Join(d.group) for d in state.attempt.devices if d.group not in state.joined)
    if missing:
        return Next(state, missing)
    unverified = tuple(
        Verify(d.group) for d in state.attempt.devices if _is_learned(state, world, d) and not _is_verified(world, d)
    )
    return Next(state, unverified)


def _hopeless(state: State, world: World) -> Failure | None:
    """Why this attempt can't succeed any more, as far as is seen. Failing too early only costs a new attempt."""
    if world.request_gone:
        return Failure(cause=Cause.WITHDRAWN)
    if world.pod_deleted or (world.pod is not None and (world.pod.ended or world.pod.deleting)):
        return Failure(cause=Cause.POD_GONE)
    if world.pod is not None and world.pod.is_bound:
        return Failure(cause=Cause.BOUND_ELSEWHERE, detail=f"to node {world.pod.node}")
    if world.pod is not None and world.pod.fenced == state.attempt.id:
        return Failure(cause=Cause.WITHDRAWN, detail="the pod was fenced")
    for device in state.attempt.devices:
        if (failure := _device_failure(state, world, device)) is not None:
            return failure
    return None


def _device_failure(state: State, world: World, device: PlannedDevice) -> Failure | None:
    joined = state.joined.get(device.group)
    if joined is None:
        return None
    reservation = world.reservations.get(device.group)
    detail = f"group {device.group}"
    if device.group in world.lost or (reservation is not None and _is_lost(state, joined, reservation)):
        return Failure(cause=Cause.RESERVATION_LOST, detail=detail)
    if reservation is not None and reservation.is_terminal:
        return Failure(cause=Cause.RESERVATION_FAILED, detail=f"{detail} on node {state.attempt.node}")
    if not _is_learned(state, world, device):
        return Failure(cause=Cause.RESERVATION_SILENT, detail=detail) if world.late else None
    assert reservation is not None  # noqa: S101 - learned
    return None if _fits_card(device, reservation) else smaller_than_asked(device, reservation.mem_mib)


def _is_lost(state: State, joined: Joined, reservation: Reservation) -> bool:
    """Another pod of that name, one being deleted, or one whose book lost our entry."""
    if reservation.uid != joined.reservation or reservation.deleting or reservation.book is None:
        return True
    entry = reservation.book.entries.get(state.attempt.pod_uid)
    return entry is None or entry.attempt != state.attempt.id


def _fits_card(device: PlannedDevice, reservation: Reservation) -> bool:
    """Whether the charge pays for the memory asked on the card that it turned out to be."""
    if not device.mem_mib or not reservation.mem_mib:
        return True
    needed = charge_nano(MemoryAsk(device.mem_mib), reservation.mem_mib)
    return needed is not None and needed <= device.nano


def _is_learned(state: State, world: World, device: PlannedDevice) -> bool:
    reservation = world.reservations.get(device.group)
    joined = state.joined.get(device.group)
    return (
        reservation is not None
        and joined is not None
        and reservation.uid == joined.reservation
        and reservation.is_learned
    )


def _is_verified(world: World, device: PlannedDevice) -> bool:
    reservation = world.reservations.get(device.group)
    return reservation is not None and (reservation.uid, reservation.uuid) in world.verified


def _is_ready(move: Next, world: World) -> bool:
    """Whether an attempt has all it needs for its Binding."""
    state = move.state
    return (
        state.phase is Phase.PREPARE
        and not move.actions
        and all(
            device.group in state.joined and _is_learned(state, world, device) and _is_verified(world, device)
            for device in state.attempt.devices
        )
    )


_BOUND_OR_BINDING = frozenset({Phase.BIND, Phase.SETTLE, Phase.RENEW, Phase.CLOSE, Phase.END})


def _hold_gang_together(moves: list[Next], worlds: Mapping[str, World]) -> list[Next]:
    """Let a unit pass to BIND whole or not at all."""
    preparing = [move for move in moves if move.state.phase is Phase.PREPARE]
    if not preparing:
        return moves
    binding = [m for m in moves if m.state.failure is None and m.state.phase in _BOUND_OR_BINDING]
    failed = [move for move in moves if move.state.failure is not None]
    is_complete = len(moves) >= moves[0].state.attempt.members
    all_ready = all(_is_ready(move, worlds[move.state.attempt.id]) for move in preparing)
    if all_ready and not failed and (is_complete or binding):
        return [_pass(move) if move.state.phase is Phase.PREPARE else move for move in moves]
    if failed and not binding:
        return [_fail(move, Failure(cause=Cause.GANG_FAILED)) for move in moves]
    if not is_complete and not binding and any(worlds[m.state.attempt.id].late for m in preparing):
        return [_fail(move, Failure(cause=Cause.GANG_LATE)) for move in moves]
    return moves


def _pass(move: Next) -> Next:
    """To BIND, or first to a common resourceVersion where an earlier incarnation had begun to renew."""
    state = move.state
    versions = {joined.rv for joined in state.joined.values()}
    if len(versions) > 1:
        return Next(msgspec.structs.replace(state, phase=Phase.SETTLE, pod=None))
    return Next(msgspec.structs.replace(state, phase=Phase.BIND, rv=next(iter(versions), state.rv)))


def _fail(move: Next, failure: Failure) -> Next:
    return Next(outcome.fail(move.state, failure)) if move.state.phase is Phase.PREPARE else move


def _act(move: Next, world: World, unit: Sequence[Next]) -> Next:  # noqa: PLR0911 - one return per phase
    """Return the actions of the phases after PREPARE."""
    state = move.state
    match state.phase:
        case Phase.PREPARE | Phase.END:
            return move
        case Phase.BIND:
            return _bind(state, world)
        case Phase.SETTLE:
            return Next(state, (ReadPod(),))
        case Phase.RENEW:
            stale = [(group, joined) for group, joined in state.joined.items() if joined.rv != state.rv]
            return Next(state, tuple(Renew(group, joined.rv, state.rv) for group, joined in stale))
        case Phase.CLOSE:
            all_settled = all(m.state.phase in {Phase.CLOSE, Phase.END} or m.state.failure for m in unit)
            return Next(state, (DropRequest(),) if all_settled else ())
        case Phase.DROP:
            return Next(state, (DropRequest(),))
        case Phase.FENCE:
            return _fence(state)
        case Phase.LEAVE:
            return _leave(state)


def _bind(state: State, world: World) -> Next:
    pod = state.pod or world.pod
    if pod is None:
        return Next(state, (ReadPod(),))
    if pod.uid != state.attempt.pod_uid or not state.attempt.asks_same(pod.request) or pod.request is None:
        return Next(msgspec.structs.replace(state, phase=Phase.SETTLE), (ReadPod(),))
    grant = _grant(state, world)
    if grant is None:
        return Next(outcome.fail(state, Failure(cause=Cause.RESERVATION_LOST, detail="between joining and binding")))
    if pod.config_maps and state.attempt.devices and not state.has_config_maps:
        return Next(state, (WriteConfigMaps(grant, pod.request),))
    return Next(state, (PostBinding(state.rv, grant, pod.request),))


def _grant(state: State, world: World) -> Grant | None:
    """Return what the Binding will say; None when a device is not what was joined and verified any more."""
    devices = []
    for device in state.attempt.devices:
        held = world.reservations.get(device.group)
        if held is None or not _is_learned(state, world, device) or not _is_verified(world, device):
            return None
        devices.append(DeviceGrant(device.group, held.uid, held.uuid, device.nano))
    return Grant(state.attempt.id, tuple(devices))


_NO_FENCE = frozenset({Cause.POD_GONE, Cause.BOUND_ELSEWHERE})


def _fence(state: State) -> Next:
    failure = state.failure
    if failure is None or failure.cause in _NO_FENCE:
        return _leave(msgspec.structs.replace(state, phase=Phase.LEAVE))
    return Next(state, (Fence(state.rv, failure),))


def _leave(state: State) -> Next:
    if not state.joined:
        return Next(msgspec.structs.replace(state, phase=Phase.END))
    return Next(state, tuple(Leave(group, joined.rv) for group, joined in state.joined.items()))
