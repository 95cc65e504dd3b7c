"""What the agent says of its node in the status of its GpuNode, and when it writes it: seldom.

A change of what others act on (cards, health, layouts, limits, the agent itself) is written at once, and then not again
within two seconds. Numbers of use, and which tenants without a limit there are, are written every five minutes at
most. A status that is as it was is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from nodeagent.core.devices import Card
from nodeagent.core.enforcement.overuse import Key
from nodeagent.core.enforcement.tenants import TenantUse
from nodeagent.core.mig_partitioning import CardReport
from wire.crds.gpunode import (
    MOST_CARDS,
    MOST_TENANTS,
    AgentStatus,
    CardHealth,
    CardStatus,
    GpuNodeStatus,
    TenantStatus,
)

#: Between two writes.
PAUSE_S: Final = 2.0
#: Between two writes of use alone.
USE_PAUSE_S: Final = 300.0
WELL: Final = "well"
ILL: Final = "ill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """All that the parts of the agent know of the node. ``health``, ``slices``: by the card's UUID."""

    cards: Sequence[Card] = ()
    health: Mapping[str, CardHealth] = field(default_factory=dict)
    slices: Mapping[str, CardReport] = field(default_factory=dict)
    tenants: Sequence[TenantStatus] = ()
    agent: AgentStatus = AgentStatus()  # noqa: RUF009 - frozen


def status(told: Told) -> GpuNodeStatus:
    """Return the status that says it. The same is always said in the same order."""
    cards = [_card(card, told) for card in sorted(told.cards, key=lambda card: card.index)]
    tenants = sorted(told.tenants, key=lambda tenant: (tenant.pod, tenant.pod_uid, tenant.card))
    return GpuNodeStatus(
        gpus=len(cards),
        healthy=sum(card.health is None or card.health.state in {"", WELL} for card in cards),
        cards=cards[:MOST_CARDS] or None,
        tenants=tenants[:MOST_TENANTS] or None,
        agent=told.agent,
    )


def _card(card: Card, told: Told) -> CardStatus:
    slices = told.slices.get(card.uuid, CardReport())
    return CardStatus(
        uuid=card.uuid,
        index=card.index,
        memory_mib=card.mem_mib or 0,
        product=card.product,
        numa=card.numa,
        health=told.health.get(card.uuid),
        mig=card.has_mig,
        profiles=list(slices.profiles) or None,
        slices=sorted(card.slices) or None,
        layout=None if slices.layout is None else list(slices.layout),
        partitioning=slices.partitioning,
    )


def health_of(
    lost: Mapping[str, str], limiting: Mapping[str, CardHealth], judged: Mapping[str, CardHealth]
) -> dict[str, CardHealth]:
    """Return the health that is reported, by UUID: the first of these sources by which a GPU is not well.

    ``judged``: by the device plug-in. ``lost``: the driver's words. ``limiting``: by the back ends that limit tenants.
    """
    found = {uuid: CardHealth(state=ILL, reason=why) for uuid, why in lost.items()}
    not_well = {uuid: one for uuid, one in judged.items() if one.state not in {"", WELL}}
    return dict(judged) | dict(limiting) | found | not_well


def tenants(uses: Iterable[TenantUse], idle_since: Mapping[Key, str]) -> tuple[TenantStatus, ...]:
    """Return what is told of tenants. ``idle_since``: since when those that are idle have been, in wall time."""
    return tuple(
        TenantStatus(
            pod_uid=one.tenancy.pod_uid,
            pod=one.tenancy.pod,
            card=one.tenancy.device,
            memory_percent=one.memory_percent,
            sm_percent=one.sm_percent,
            idle_since=idle_since.get(one.tenancy.key),
            enforced=one.enforced,
        )
        for one in uses
    )


def write_at_s(wanted: GpuNodeStatus, written: GpuNodeStatus, last_s: float | None) -> float | None:
    """Return when a status is to be written; None: it is as written.

    ``last_s``: when it was written last, None for never.
    """
    if wanted == written:
        return None
    if last_s is None:
        return 0.0
    is_use = _without_use(wanted) == _without_use(written)
    return last_s + (USE_PAUSE_S if is_use else PAUSE_S)


def patch(wanted: GpuNodeStatus, at: str) -> dict[str, Any]:
    """Return a merge patch of the status: what is not said any more is taken away, what others say stays.

    ``at``: the time of the write, which no write is made for.
    """
    return {"status": {**_filled(wanted), "reportedAt": at}}


def _filled(part: msgspec.Struct) -> dict[str, Any]:
    """Each field by its name on the wire, also where it is the default; None for none. Lists are replaced whole."""
    filled: dict[str, Any] = {}
    for each in msgspec.structs.fields(part):
        value = getattr(part, each.name)
        filled[each.encode_name] = _filled(value) if isinstance(value, msgspec.Struct) else msgspec.to_builtins(value)
    return filled


def _without_use(of: GpuNodeStatus) -> GpuNodeStatus:
    limited = [
        msgspec.structs.replace(tenant, memory_percent=None, sm_percent=None, idle_since=None)
        for tenant in of.tenants or ()
        if tenant.enforced
    ]
    return msgspec.structs.replace(of, tenants=limited)
