"""Attempts as binders keep them: which belong together, which are not worth keeping.

A unit whose attempt has not begun is not kept: every BindRequest without one stands for it, so a crash needs no step to
begin again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sharing.state import Phase
from verification.model import server
from verification.model.state import GROUP, Binder, Entry, Request, Unit, World


def first(request: Request) -> Unit:
    """An attempt of which nothing is known but its BindRequest."""
    return Unit(request, Phase.PREPARE.value, request.rv)


def together(world: World, number: int) -> list[tuple[Unit, ...]]:
    """A binder's attempts, those that bind together side by side, those that have not begun among them."""
    known = {one.request.attempt: one for one in world.binders[number].units}
    for request in world.requests:
        if request is not None and request.attempt not in known:
            known[request.attempt] = first(request)
    groups: dict[int, list[Unit]] = {}
    for one in known.values():
        groups.setdefault(one.request.plan or one.request.attempt, []).append(one)
    return [tuple(sorted(group)) for group in groups.values()]


def keep(world: World, number: int, moved: Sequence[Unit]) -> World:
    """Put units back; those that ended, or have nothing that a first look would not have, are not kept."""
    attempts = {one.request.attempt for one in moved}
    binder = world.binders[number]
    others = [one for one in binder.units if one.request.attempt not in attempts]
    kept = [one for one in moved if not _is_over(one) and not _is_first(world, one)]
    return put_binder(world, number, binder._replace(units=tuple(sorted((*others, *kept)))))


def put_binder(world: World, number: int, binder: Binder) -> World:
    """One binder changed; ``Binder()`` is one that was just started."""
    return world._replace(binders=(*world.binders[:number], binder, *world.binders[number + 1 :]))


def entry(one: Unit, group: int, rv: int) -> Entry:
    """What an attempt has in the book of a group, at a version of its pod."""
    share = next(share for at, share in one.request.devices if at == group)
    return Entry(one.request.pod, one.request.attempt, rv, share)


def has_lost(world: World, one: Unit, group: int) -> bool:
    """Whether the reservation that was joined is gone."""
    held = world.resvs[group - GROUP]
    return held is None or held.uid != {at: uid for at, uid, _ in one.joined}.get(group)


def _is_over(one: Unit) -> bool:
    """It has ended, or has nothing left to leave."""
    return one.phase == Phase.END.value or (one.phase == Phase.LEAVE.value and not one.joined)


def _is_first(world: World, one: Unit) -> bool:
    return one == first(one.request) and server.request(world, one.request.attempt) is not None
