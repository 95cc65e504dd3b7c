"""The step function: attempts x world -> next actions. Pure; it walks the steps of docs/design/protocol.md.

``step`` looks at all attempts that bind together (one, or a gang's) and says what to write or read next for each.
The shell carries that out, feeds the answers back (sharing/outcome.py) and asks again; it also asks again when
the world changed. An attempt without actions waits.

The binder runs it for BindRequests, the scheduler for direct attempts (``Attempt.is_direct``): these have no
BindRequest to drop, do not verify devices, and give up where the scheduler may as well decide again.

Gangs: nobody is bound before all members have joined and verified their devices, and no BindRequest goes away before
all are bound, so that after a crash the whole gang is seen again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gpu import bound_pod, container_devices
from gpu.attempts import Cause
from gpu.bind_request import PlannedDevice
from gpu.container_devices import Identity, Pin
from gpu.grant import DeviceGrant, Grant
from gpu.limits import DRIVER_CAP
from gpu.request import MemoryAsk, charge_nano
from gpu.reservation import Reservation
from sharing import outcome
from sharing.failure import Failure, caps_lost, other_than_asked, smaller_than_asked
from sharing.pods import PodView
from sharing.state import (
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
    TellBound,
    Verify,
    World,
    WriteConfigMaps,
)
from wire.tombstones import is_older


class Next(msgspec.Struct, frozen=True, gc=False):
    """A state and what to do for it now. Actions of one attempt may be carried out side by side."""

    state: State
    actions: tuple[Action, ...] = ()


#: Changes of phase that can follow each other without a write or read between them; more would be a circle.
_ROUNDS = 8


def step(states: Sequence[State], worlds: Mapping[str, World]) -> list[Next]:
    """Return what to do next for the attempts of one unit; ``worlds`` by attempt id.

    Goes on until nothing changes any more, so an attempt without actions waits for the world and for nothing else.
    """
    moves = [Next(state) for state in states]
    for _ in range(_ROUNDS):
        before = [move.state for move in moves]
        moves = _round(before, worlds)
        if len(moves) == 1 and moves[0].actions:
            break  # one alone that has something to do has come as far as it can
        if [move.state for move in moves] == before:
            break
    return moves


def _round(states: Sequence[State], worlds: Mapping[str, World]) -> list[Next]:
    moves = [_prepare(state, worlds[state.attempt.id]) for state in states]
    moves = _hold_gang_together(moves, worlds)
    return [_act(move, worlds[move.state.attempt.id], moves) for move in moves]


def _prepare(state: State, world: World) -> Next:
    """Walk one attempt through PREPARE; other phases pass unchanged."""
    if state.phase is not Phase.PREPARE:
        return Next(state)
    if world.pod is not None and state.attempt.is_done(world.pod):
        return Next(msgspec.structs.replace(state, pod=world.pod, phase=Phase.CLOSE))
    if (failure := _hopeless(state, world)) is not None:
        return Next(outcome.fail(state, failure))
    state = _with_newest_version(state, world)
    missing = tuple(Join(d.group) for d in state.attempt.devices if d.group not in state.joined)
    if missing:
        return Next(state, missing)
    unverified = tuple(
        Verify(d.group) for d in state.attempt.devices if _is_told(state, world, d) and not _is_verified(world, d)
    )
    return Next(state, unverified)


def _with_newest_version(state: State, world: World) -> State:
    """Before its first entry an attempt follows a pod that was changed since it was decided on."""
    pod = world.pod
    if state.joined or pod is None or not is_older(state.rv, pod.rv):
        return state
    return msgspec.structs.replace(state, rv=pod.rv)


def _hopeless(state: State, world: World) -> Failure | None:
    """Why this attempt can't succeed any more, as far as is seen. Failing too early only costs a new attempt."""
    if world.request_gone:
        return Failure(cause=Cause.WITHDRAWN)
    if world.pod_deleted:
        return Failure(cause=Cause.POD_GONE)
    # A view from before the decision knows nothing that the decision did not.
    if world.pod is not None and not is_older(world.pod.rv, state.attempt.rv):
        failure = outcome.unwilling(state, world.pod)
        if failure is not None:
            return failure
    pod = _newest(state.pod, world.pod)
    if _lost_caps(state, world, pod):
        return caps_lost(state.attempt.node)
    for device, pin in zip(state.attempt.devices, _pins(state, pod), strict=True):
        failure_of = _direct_failure if state.attempt.is_direct else _device_failure
        if (failure := failure_of(state, world, device, pin)) is not None:
            return failure
    return None


def _lost_caps(state: State, world: World, pod: PodView | None) -> bool:
    """Whether containers read caps by the driver and the node does not say any more that it has them.

    They would run without a limit there, or not start.
    """
    taken = pod.taken(state.attempt.alternative) if pod is not None else None
    return taken is not None and taken.driver_caps and world.enforces is not None and DRIVER_CAP not in world.enforces


def _pins(state: State, pod: PodView | None) -> Sequence[Pin]:
    """What the pod says of its devices, as far as it is seen: before the Binding it is."""
    taken = pod.taken(state.attempt.alternative) if pod is not None else None
    found = container_devices.pins(taken) if taken is not None else ()
    return (
        found
        if len(found) == len(state.attempt.devices)
        else [container_devices.ANY_DEVICE] * len(state.attempt.devices)
    )


def _device_failure(state: State, world: World, device: PlannedDevice, pin: Pin) -> Failure | None:
    joined = state.joined.get(device.group)
    if joined is None:
        return None
    reservation = world.reservations.get(device.group)
    detail = f"group {device.group}"
    if device.group in world.lost or (reservation is not None and _is_lost(state, joined, reservation)):
        return Failure(cause=Cause.RESERVATION_LOST, detail=detail)
    if reservation is not None and reservation.is_terminal:
        return Failure(cause=Cause.RESERVATION_FAILED, detail=f"{detail} on node {state.attempt.node}")
    if reservation is None or not _is_told(state, world, device):
        return Failure(cause=Cause.RESERVATION_SILENT, detail=detail) if world.late else None
    if world.late and state.disputed and not _is_verified(world, device):
        return Failure(cause=Cause.DEVICE_CLAIMED, detail=state.disputed)
    return _unfit(device, pin, reservation)


def _direct_failure(state: State, world: World, device: PlannedDevice, pin: Pin) -> Failure | None:
    """A direct attempt waits for no device: it is the one that was decided on, known and verified, or it is lost."""
    held = world.reservations.get(device.group)
    if device.group not in state.joined:
        return None
    if held is None or not _is_told(state, world, device) or not _is_verified(world, device):
        return Failure(cause=Cause.RESERVATION_LOST, detail="the device changed")
    return _unfit(device, pin, held)


def _unfit(device: PlannedDevice, pin: Pin, held: Reservation) -> Failure | None:
    """What is wrong with the device that it turned out to be."""
    other = _other_device(pin, held)
    return other or (None if _fits_card(device, held) else smaller_than_asked(device, held.mem_mib))


def _other_device(pin: Pin, held: Reservation) -> Failure | None:
    """Nobody can say which device kubelet hands out: this one may not be one of those that the pod names."""
    opened = Identity(held.uuid, held.index)
    return None if pin.takes(opened) else other_than_asked(pin, opened)


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


def _is_told(state: State, world: World, device: PlannedDevice) -> bool:
    reservation = world.reservations.get(device.group)
    joined = state.joined.get(device.group)
    return (
        reservation is not None and joined is not None and reservation.uid == joined.reservation and reservation.is_told
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
            device.group in state.joined and _is_told(state, world, device) and _is_verified(world, device)
            for device in state.attempt.devices
        )
    )


_ON_ITS_WAY = frozenset({Phase.BIND, Phase.SETTLE, Phase.RENEW, Phase.CLOSE, Phase.END})


def _hold_gang_together(moves: list[Next], worlds: Mapping[str, World]) -> list[Next]:
    """Let a unit pass to BIND whole or not at all; once members may be bound, the others follow one by one."""
    preparing = [move for move in moves if move.state.phase is Phase.PREPARE]
    if not preparing:
        return moves
    ready = {move.state.attempt.id for move in preparing if _is_ready(move, worlds[move.state.attempt.id])}
    if any(move.state.failure is None and move.state.phase in _ON_ITS_WAY for move in moves):
        return [_pass(move) if move.state.attempt.id in ready else move for move in moves]
    if any(move.state.failure is not None for move in moves):
        return [_fail(move, Failure(cause=Cause.GANG_FAILED)) for move in moves]
    if len(moves) < moves[0].state.attempt.members:
        is_late = any(worlds[move.state.attempt.id].late for move in preparing)
        return [_fail(move, Failure(cause=Cause.GANG_LATE)) for move in moves] if is_late else moves
    return [_pass(move) for move in moves] if len(ready) == len(moves) else moves


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
            return _renew(state)
        case Phase.CLOSE:
            return _close(state, world, unit)
        case Phase.DROP:
            return Next(state, (DropRequest(),))
        case Phase.FENCE:
            return Next(state, (Fence(state.rv, state.failure),) if state.failure else ())
        case Phase.LEAVE:
            return _leave(state)


def _close(state: State, world: World, unit: Sequence[Next]) -> Next:
    """Tell the pod where somebody reads it: KAI's tools do, and so does who was told that an earlier attempt failed."""
    pod = _newest(state.pod, world.pod)
    if not state.has_told and pod is not None and (pod.config_maps or pod.fenced):
        return Next(state, (TellBound(),))
    all_settled = all(m.state.phase in {Phase.CLOSE, Phase.END} or m.state.failure for m in unit)
    return Next(state, (DropRequest(),) if all_settled else ())


def _renew(state: State) -> Next:
    stale = tuple(Renew(group, joined.rv, state.rv) for group, joined in state.joined.items() if joined.rv != state.rv)
    return Next(state, stale) if stale else Next(msgspec.structs.replace(state, phase=Phase.BIND))


def _bind(state: State, world: World) -> Next:
    pod = _newest(state.pod, world.pod)
    if pod is None or is_older(state.rv, pod.rv) or outcome.unwilling(state, pod) is not None:
        return Next(msgspec.structs.replace(state, phase=Phase.SETTLE, pod=None), (ReadPod(),))
    held = _held(state, world)
    taken = pod.taken(state.attempt.alternative)
    if held is None or taken is None:
        # A device is not what was joined and verified any more: wait, or fail for the reason that is found there.
        return Next(msgspec.structs.replace(state, phase=Phase.PREPARE))
    for pin, holder in zip(_pins(state, pod), held, strict=True):
        if (other := _other_device(pin, holder)) is not None:
            return Next(outcome.fail(state, other))
    if _lost_caps(state, world, pod):
        return Next(outcome.fail(state, caps_lost(state.attempt.node)))
    grant = _grant(state, held)
    if pod.config_maps and state.attempt.devices and not state.has_config_maps:
        return Next(state, (WriteConfigMaps(grant, taken.request, pod.config_maps),))
    return Next(state, (PostBinding(state.rv, grant, taken, bound_pod.given(grant, held)),))


def _newest(read: PodView | None, seen: PodView | None) -> PodView | None:
    if read is None or seen is None:
        return read or seen
    return seen if is_older(read.rv, seen.rv) else read


def _held(state: State, world: World) -> list[Reservation] | None:
    """Return who holds the devices; None when one is not what was joined and verified any more."""
    found = []
    for device in state.attempt.devices:
        held = world.reservations.get(device.group)
        if held is None or not _is_told(state, world, device) or not _is_verified(world, device):
            return None
        found.append(held)
    return found


def _grant(state: State, held: Sequence[Reservation]) -> Grant:
    """Return what the Binding will say."""
    devices = (
        DeviceGrant(
            group=device.group,
            reservation=holder.uid,
            uuid=holder.uuid,
            nano=_nano_on_card(device, holder),
            resource=holder.resource,
            compute_percent=device.compute_percent,
        )
        for device, holder in zip(state.attempt.devices, held, strict=True)
    )
    return Grant(state.attempt.id, tuple(devices))


def _nano_on_card(device: PlannedDevice, held: Reservation) -> int:
    """What a memory ask costs on the card that it got: never more than was joined for before the card was known.

    That stands where the card's memory is not known.
    """
    if not device.mem_mib:
        return device.nano
    return min(device.nano, charge_nano(MemoryAsk(device.mem_mib), held.mem_mib) or device.nano)


def _leave(state: State) -> Next:
    if not state.joined:
        return Next(msgspec.structs.replace(state, phase=Phase.END))
    return Next(state, tuple(Leave(group, joined.rv) for group, joined in state.joined.items()))
