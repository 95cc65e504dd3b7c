"""One pod: what it asks and in whose words, what it was given, and why it waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from cli.inspection.values import GivenView, PodView, WaitView
from gpu import asked, claimedshare, grant, record, reservation, telling
from gpu.dialects import vocabulary
from gpu.ended import has_ended
from gpu.refusal import Refusal, told
from gpu.request import FractionAsk, charge_nano
from gpu.reservation import Reservation
from gpu.share import memory_from_nano
from gpu.translation import Translation
from wire import names
from wire.core import Condition, ContainerStatus, Pod

_PAST_THE_DOOR: Final = "it asks in another system's words, which are read at admission, and admission has not seen it"


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What else has to be known. ``reservations`` by group, ``cards_mib`` by node where all its cards are equal.

    ``orders``: pod UID -> node of the hand-over that is under way.
    """

    reservations: Mapping[str, Reservation]
    cards_mib: Mapping[str, int]
    orders: Mapping[str, str]
    scheduler_name: str = names.SCHEDULER_NAME


def pod_view(pod: Pod, around: Surroundings) -> PodView:
    """Show any pod, with GPUs or without."""
    found = asked.asked(pod)
    view = PodView(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        phase=pod.status.phase,
        node=pod.spec.node_name,
        scheduler=pod.spec.scheduler_name,
        pod_group=(pod.metadata.annotations or {}).get(names.POD_GROUP_NAME, ""),
        given=tuple(_given(pod, around, found)),
        waits=_waits(pod, around.orders.get(pod.metadata.uid, "")),
        not_enforced=said.message if (said := _denied(pod, names.CONDITION_LIMITS_ENFORCED)) else "",
    )
    if isinstance(found, Refusal):
        return msgspec.structs.replace(view, refused=told(found))
    if came_past_the_door(pod):
        return msgspec.structs.replace(view, refused=_PAST_THE_DOOR)
    return _with_request(view, found)


def came_past_the_door(pod: Pod) -> bool:
    """Whether an unbound pod asks in words that admission reads, and admission has not seen it."""
    has_record = names.GPU_RECORD in (pod.metadata.annotations or {})
    return not pod.spec.node_name and not has_record and vocabulary.is_spoken(pod)


def may_be_of_interest(pod: Pod) -> bool:
    """Whether a pod may belong into a survey: it has not ended, and stands for itself."""
    return not has_ended(pod.status) and not reservation.is_reservation(pod)


def is_of_interest(view: PodView, around: Surroundings) -> bool:
    """Whether such a pod does: it has to do with GPUs, and runs, or waits for this scheduler."""
    if not view.node and view.scheduler != around.scheduler_name:
        return False
    return bool(view.dialect or view.refused or view.given)


def _with_request(view: PodView, found: Translation) -> PodView:
    """Add what it asks, if it asks anything."""
    if not found.request.containers:
        return view
    first, *others = telling.way_lines(found)
    words = (*first, *(f"or {'; '.join(lines)}" for lines in others))
    return msgspec.structs.replace(
        view,
        dialect=found.dialect,
        asks=words,
        record=msgspec.Raw(record.render(found).encode()),
        whole_gpus=found.request.whole,
    )


def _given(pod: Pod, around: Surroundings, found: Translation | Refusal) -> Iterator[GivenView]:
    """What its Binding says, and what the reservations say of those devices.

    KAI's Bindings name groups alone: the book of an adopted reservation has its share, or it is what the pod asks.
    """
    claimed = claimedshare.read(pod)
    if claimed is not None and pod.spec.node_name:
        yield GivenView(
            group="",
            reservation="",
            uuid=claimed.uuid,
            index=-1,
            nano=claimed.nano,
            mem_mib=memory_from_nano(claimed.nano, claimed.mem_mib),
            device=claimed.path,
        )
        return
    granted = grant.read(pod.metadata.annotations)
    if granted is not None:
        devices = [(device.group, device.uuid, device.nano) for device in granted.devices]
    else:
        devices = [(group, "", 0) for group in grant.labelled_groups(pod.metadata.labels)]
    if reservation.is_reservation(pod):
        return
    for group, uuid, granted_nano in devices:
        held = around.reservations.get(group)
        card_mib = (held.mem_mib if held else 0) or around.cards_mib.get(pod.spec.node_name, 0)
        nano = granted_nano or _charged(pod, held) or _asked(found, card_mib)
        yield GivenView(
            group=group,
            reservation=held.name if held else "",
            uuid=uuid or (held.uuid if held else ""),
            index=held.index if held and uuid in {"", held.uuid} else -1,
            nano=nano,
            mem_mib=memory_from_nano(nano, card_mib),
        )


def _charged(pod: Pod, held: Reservation | None) -> int:
    """What the book of a device says of a pod, 0 where it says nothing."""
    entry = held.book.entries.get(pod.metadata.uid) if held is not None and held.book is not None else None
    return entry.nano if entry is not None else 0


def _asked(found: Translation | Refusal, card_mib: int) -> int:
    """What a pod asks of each of its devices, as the binder charges it, 0 where that can't be told."""
    asks = () if isinstance(found, Refusal) else found.request.shared
    known = {charge_nano(ask, card_mib) for ask in asks if isinstance(ask, FractionAsk) or card_mib}
    return (known.pop() or 0) if len(known) == 1 else 0


def _waits(pod: Pod, on_its_way_to: str) -> WaitView | None:
    """Why it does not run yet, as far as anybody has said; None once all its containers had their chance."""
    if pod.status.phase not in {names.PENDING, ""}:
        return None
    if pod.spec.node_name:
        return _starting(pod)
    said = _denied(pod, names.CONDITION_POD_SCHEDULED)
    return WaitView(
        reason=said.reason if said else "",
        message=said.message if said else "",
        on_its_way_to=on_its_way_to,
        last_failure=(pod.metadata.annotations or {}).get(names.FENCED_BECAUSE, ""),
    )


def _denied(pod: Pod, kind: str) -> Condition | None:
    return next((c for c in pod.status.conditions or () if c.type == kind and c.status == "False"), None)


def _starting(pod: Pod) -> WaitView:
    """What kubelet says of the first container that it can't start yet."""
    statuses: list[ContainerStatus] = [
        *(pod.status.init_container_statuses or ()),
        *(pod.status.container_statuses or ()),
    ]
    waiting = next((s.state.waiting for s in statuses if s.state is not None and s.state.waiting), None)
    if waiting is None:
        return WaitView()
    return WaitView(reason=str(waiting.get("reason", "")), message=str(waiting.get("message", "")))
