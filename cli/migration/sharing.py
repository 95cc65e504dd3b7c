"""Rows about running shares: what the binder adopts when it starts, and what it can't.

Judged by the binder's own reading of pods and reservations (gpu/reservation.py, sharing/rebuilding.py), so that
the two agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cli.inspection.telling import gpus_up
from cli.migration.found import Found
from cli.migration.rows import Code, Row, row
from gpu import reservation as reservations
from gpu.cards import cards_mib
from gpu.request import MemoryAsk
from gpu.reservation import Reservation
from gpu.share import NANO_PER_DEVICE
from sharing.pods import PodView
from sharing.pods import view as read_pod
from sharing.rebuilding import tenant
from wire import names
from wire.core import Node, Pod

_INDEX: Final = re.compile(r"\d+", re.ASCII)


class _Shares(msgspec.Struct, frozen=True):
    """Bound pods with shares, and reservations, by group."""

    bound: Mapping[str, Sequence[PodView]]
    held: Mapping[str, Sequence[Reservation]]
    nodes: Mapping[str, Node]

    def card_mib(self, held: Reservation) -> int:
        """What the binder charges memory by."""
        node = self.nodes.get(held.node)
        if held.mem_mib or node is None:
            return held.mem_mib
        return cards_mib(node.metadata.labels or {}, node.metadata.annotations or {})[0]


def share_rows(found: Found) -> Iterator[Row]:
    """All running shares and all reservations."""
    bound: dict[str, list[PodView]] = {}
    held: dict[str, list[Reservation]] = {}
    for pod in found.pods:
        if _says_reservation(pod):
            if not reservations.is_reservation(pod):
                yield row(Code.RESERVATION_ELSEWHERE, _pod(pod.metadata.namespace, pod.metadata.name))
            else:
                held.setdefault((one := reservations.read(pod)).group, []).append(one)
            continue
        seen = read_pod(pod)
        for group in seen.held_groups if seen.is_bound else ():
            bound.setdefault(group, []).append(seen)
        asks = seen.request is None or bool(seen.request.shared)
        if seen.is_bound and asks and not seen.held_groups and seen.scheduler == names.SCHEDULER_NAME:
            yield row(Code.SHARE_UNLABELLED, _pod(seen.namespace, seen.name))
    shares = _Shares(bound, held, found.nodes)
    for group in sorted({*bound, *held}):
        yield from _group(group, shares)
    yield from _twice(held)


def _says_reservation(pod: Pod) -> bool:
    return (pod.metadata.labels or {}).get(names.APP_LABEL) == names.RESERVATION_APP


def _group(group: str, shares: _Shares) -> Iterator[Row]:
    bound, listed = shares.bound.get(group, ()), shares.held.get(group, ())
    alive = [held for held in listed if not held.is_terminal]
    if not group:
        yield from (row(Code.RESERVATION_NAMELESS, _held(held)) for held in listed)
    elif len(alive) > 1:
        yield from (row(Code.RESERVATION_DISPUTED, _held(held)) for held in alive)
    elif alive:
        yield from _device(alive[0], shares)
    elif bound:
        for held in listed:
            yield row(Code.RESERVATION_ENDED, _held(held), phase=held.phase, tenants=len(bound))
        if not listed:
            yield from (row(Code.SHARE_UNRESERVED, _pod(pod.namespace, pod.name)) for pod in bound)


def _device(held: Reservation, shares: _Shares) -> Iterator[Row]:
    """One reservation, and all whose share it holds."""
    bound = shares.bound.get(held.group, ())
    elsewhere = [pod for pod in bound if pod.node != held.node]
    for pod in elsewhere:
        yield row(Code.SHARE_MISPLACED, _pod(pod.namespace, pod.name), reservation=held.name)
    here = [pod for pod in bound if pod.node == held.node]
    if not bound:
        yield row(Code.RESERVATION_IDLE, _held(held))
    if not held.uuid:
        yield row(Code.RESERVATION_UNTOLD, _held(held))
    elif _INDEX.fullmatch(held.uuid):
        yield row(Code.RESERVATION_BY_INDEX, _held(held), value=held.uuid)
    charges = {pod.uid: tenant(held.group, pod, card_mib=shares.card_mib(held)).entry.nano for pod in here}
    if sum(charges.values()) > NANO_PER_DEVICE:
        yield row(Code.GPU_OVERBOOKED, _held(held), used=gpus_up(sum(charges.values())))
    is_adopted = sum(charges.values()) <= NANO_PER_DEVICE
    for pod in here:
        if why := _why_whole(pod, charges[pod.uid]):
            yield row(Code.SHARE_WHOLE, _pod(pod.namespace, pod.name), why=why)
        elif is_adopted:
            yield row(Code.SHARE_ADOPTED, _pod(pod.namespace, pod.name))


def _why_whole(pod: PodView, nano: int) -> str:
    """Why a share is charged a whole GPU; "" where it is not. A pod that we bound says what it was given."""
    if nano < NANO_PER_DEVICE or pod.grant is not None:
        return ""
    shared = pod.request.shared if pod.request is not None else ()
    if any(isinstance(ask, MemoryAsk) for ask in shared):
        return f"its node does not say how much memory a GPU has (label {names.NODE_GPU_MEMORY}), or less than it asks"
    return "what it asks can't be read from KAI's annotations"


def _twice(held: Mapping[str, Sequence[Reservation]]) -> Iterator[Row]:
    """Reservations of different groups that say the same GPU of one node."""
    alive = [one for listed in held.values() for one in listed if one.uuid and not one.is_terminal]
    counts = Counter((one.node, one.uuid) for one in alive)
    for one in alive:
        if counts[one.node, one.uuid] > 1:
            yield row(Code.GPU_TWICE, _held(one), uuid=one.uuid)


def _held(held: Reservation) -> str:
    return _pod(held.namespace, held.name)


def _pod(namespace: str, name: str) -> str:
    return f"Pod {namespace}/{name}"
