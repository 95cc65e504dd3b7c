"""The API server: what a write does to the objects, with its preconditions (protocol.md, "Facts of the API server").

A book is changed by compare-and-set until it is answered. Events between the read and a write that succeeds
have changed nothing in that object, so reading and writing are one step here, where the write carries its version.
"""

from __future__ import annotations

from typing import Any, Final, cast

from gpu.book import Book
from verification.model.config import Rules
from verification.model.state import (
    ATTEMPT,
    DELETING,
    GROUP,
    LIVE,
    NAMES,
    PENDING,
    RESERVATION,
    VERSIONS,
    Entry,
    Ghost,
    Holding,
    Late,
    Pod,
    Request,
    Resv,
    World,
    slot_of,
)
from verification.model.translating import Translator, entries

_TOPS: Final[dict[Any, tuple[int, int, int]]] = {}


def fresh(world: World, base: int) -> int:
    """A name of this kind that nothing in the world uses."""
    at = (ATTEMPT, RESERVATION).index(base) if base in {ATTEMPT, RESERVATION} else 2
    top = base - 1
    for part in (
        *world.pods,
        *world.resvs,
        *world.requests,
        *world.schedulers,
        *world.binders,
        world.ghosts,
        world.late,
        world.collector,
        world.plan,
    ):
        found = _TOPS.get(part)
        if found is None:
            tops = [ATTEMPT - 1, RESERVATION - 1, ATTEMPT + 99]
            _top(part, tops)
            found = _TOPS[part] = (tops[0], tops[1], tops[2])
        top = max(top, found[at])
    return top + 1


def _top(part: Any, tops: list[int]) -> None:
    if isinstance(part, tuple):
        for item in part:
            _top(item, tops)
    elif type(part) is int and part >= NAMES:
        for at, base in ((0, ATTEMPT), (1, RESERVATION), (2, ATTEMPT + 100)):
            if base <= part < base + 100:
                tops[at] = max(tops[at], part)


# --- reading ---------------------------------------------------------------------------------------------------------
def pod(world: World, uid: int) -> Pod | None:
    """The pod of this UID, if there is one."""
    found = world.pods[slot_of(uid)]
    return found if found is not None and found.uid == uid else None


def request(world: World, attempt: int) -> Request | None:
    """The BindRequest of this UID, if there is one."""
    return next((one for one in world.requests if one is not None and one.attempt == attempt), None)


# --- writing ---------------------------------------------------------------------------------------------------------
def put_pod(world: World, slot: int, changed: Pod | None) -> World:
    """Write a pod; a changed one gets a new version."""
    if changed is not None:
        changed = changed._replace(rv=changed.rv + 1)
    return world._replace(pods=(*world.pods[:slot], changed, *world.pods[slot + 1 :]))


def put_resv(world: World, group: int, changed: Resv | None) -> World:
    """Write a reservation; a changed one gets a new version, one that nothing keeps goes."""
    if changed is not None:
        changed = changed._replace(rv=changed.rv + 1)
        has_ended = not changed.dev and changed.phase != PENDING
        if changed.deleting and not changed.finalized and (has_ended or changed.forced):
            if changed.dev:
                world = world._replace(left_behind=(*world.left_behind, (group, changed.dev)))
            changed = None
    at = group - GROUP
    return world._replace(resvs=(*world.resvs[:at], changed, *world.resvs[at + 1 :]))


def put_request(world: World, slot: int, changed: Request | None) -> World:
    """Write a BindRequest."""
    return world._replace(requests=(*world.requests[:slot], changed, *world.requests[slot + 1 :]))


def create_resv(world: World, group: int, book: tuple[Entry, ...]) -> World:
    """Create a reservation with this book."""
    uid = fresh(world, RESERVATION)
    return put_resv(world, group, Resv(uid, uid * VERSIONS, book))


def bind(world: World, binding: Late, rules: Rules) -> World | None:
    """POST a Binding; None when it is refused. ``what``: uid, rv, attempt, holdings."""
    uid, rv, attempt, holdings = cast("tuple[int, int, int, tuple[Holding, ...]]", binding.what)
    slot = slot_of(uid)
    there = world.pods[slot]
    if there is None or there.grant or there.life != LIVE:
        return None
    if (rules.binding_for_uid and there.uid != uid) or (rules.binding_at_rv and there.rv != rv):
        return None
    world = put_pod(world, slot, there._replace(grant=(attempt, holdings)))
    for group, reservation, uuid, _ in holdings:
        held = world.resvs[group - GROUP]
        if held is not None and (held.uid, held.uuid) == (reservation, uuid) and not held.proven:
            resvs = (*world.resvs[: group - GROUP], held._replace(proven=True), *world.resvs[group - GROUP + 1 :])
            world = world._replace(resvs=resvs)
    return world


def fence(world: World, late: Late, rules: Rules) -> World | None:
    """Patch a pod's status at a version; None when it is not at that version any more. ``what``: uid, rv, attempt."""
    uid, rv, attempt = cast("tuple[int, int, int]", late.what)
    there = pod(world, uid)
    if there is None or (rules.fence_at_rv and there.rv != rv):
        return None
    before = tuple(one for one in there.fences if one != attempt and _is_worked_on(world, one))
    return put_pod(world, slot_of(uid), there._replace(fences=(attempt, *before)))


def _is_worked_on(world: World, attempt: int) -> bool:
    """Whether any process still knows an attempt: a fence that names another one tells nobody anything any more."""
    return (
        any(one.attempt == attempt for scheduler in world.schedulers for one in scheduler)
        or any(one.request.attempt == attempt for binder in world.binders for one in binder.units)
        or any(one is not None and one.attempt == attempt for one in world.requests)
    )


def delete_pod(world: World, slot: int) -> World:
    """A user deletes a pod: unbound it is gone at once, bound it ends first."""
    there = world.pods[slot]
    if there is not None and there.grant and there.life == LIVE:
        return put_pod(world, slot, there._replace(life=DELETING))
    return put_pod(world, slot, None)


def vanish(world: World, slot: int) -> World:
    """A pod is deleted by force: its containers outlive it."""
    there = world.pods[slot]
    left = () if there is None else (Ghost(there.uid, there.holdings),)
    return put_pod(world, slot, None)._replace(ghosts=tuple(sorted((*world.ghosts, *left))))


def delete_request(world: World, slot: int, attempt: int, rules: Rules) -> World:
    """Delete a BindRequest by name and UID."""
    there = world.requests[slot]
    if there is None or (rules.request_by_uid and there.attempt != attempt):
        return world
    return put_request(world, slot, None)


def forget_verified(world: World, reservation: int) -> World:
    """All binders see that a reservation tells another device: what they verified of it holds no more."""
    binders = (
        one._replace(verified=tuple(pair for pair in one.verified if pair[0] != reservation)) for one in world.binders
    )
    return world._replace(binders=tuple(binders))


# --- late writes -----------------------------------------------------------------------------------------------------
def lands(world: World, late: Late, rules: Rules) -> World | None:
    """What a late write does now; None when it is refused. It is taken off the list by the caller."""
    return _LANDS[late.kind](world, late, rules)


def _create(world: World, late: Late, rules: Rules) -> World | None:
    """``what``: the BindRequest, its UID still to be given."""
    (wanted,) = cast("tuple[Request]", late.what)
    slot = slot_of(wanted.pod)
    if world.requests[slot] is not None:
        return None
    return put_request(world, slot, wanted._replace(attempt=fresh(world, ATTEMPT)))


def _drop(world: World, late: Late, rules: Rules) -> World | None:
    """``what``: slot, BindRequest (UID)."""
    slot, attempt = cast("tuple[int, int]", late.what)
    after = delete_request(world, slot, attempt, rules)
    return None if after is world else after


def _identity(world: World, late: Late, rules: Rules) -> World | None:
    """``what``: group, reservation, device."""
    group, reservation, device = cast("tuple[int, int, int]", late.what)
    held = world.resvs[group - GROUP]
    if held is None or (rules.identity_for_uid and held.uid != reservation):
        return None
    return put_resv(world, group, held._replace(uuid=device, proven=False))


def tell_early(world: World, late: Late, rules: Rules) -> World | None:
    """The node agent writes a reservation's device; None when refused. ``what``: group, reservation, rv, device."""
    group, reservation, rv, device = cast("tuple[int, int, int, int]", late.what)
    held = world.resvs[group - GROUP]
    if held is None or (rules.reporter_for_uid and held.uid != reservation):
        return None
    if rules.reporter_at_rv and held.rv != rv:
        return None
    told = held._replace(uuid=device, reported=True, proven=held.proven and held.uuid == device)
    after = put_resv(world, group, told)
    return forget_verified(after, held.uid) if rules.verified_until_changed and held.uuid != device else after


def _book(world: World, late: Late, rules: Rules) -> World | None:
    """``what``: group, reservation, rv, book."""
    group, reservation, rv, book = cast("tuple[int, int, int, tuple[Entry, ...]]", late.what)
    held = world.resvs[group - GROUP]
    if held is None or held.uid != reservation or (rules.book_at_rv and held.rv != rv):
        return None
    return put_resv(world, group, held._replace(book=book))


_LANDS: Final = {
    "bind": bind,
    "fence": fence,
    "create": _create,
    "drop": _drop,
    "identity": _identity,
    "reporter": tell_early,
    "book": _book,
}


def may_land(world: World, late: Late, rules: Rules) -> bool:
    """Whether a late write could still land, now or later: what never can is forgotten.

    A Binding or a patch for an object that has no precondition may find another of that name.
    """
    if late.kind == "create" or (late.kind == "bind" and not rules.binding_for_uid):
        return True
    if late.kind == "drop" and not rules.request_by_uid:
        return True
    if late.kind == "identity" and not rules.identity_for_uid:
        return True
    if late.kind == "reporter" and not (rules.reporter_for_uid or rules.reporter_at_rv):
        return True
    return lands(world, late, rules) is not None


def settled(world: World, rules: Rules) -> World:
    """The world without late writes that can't land any more."""
    if not world.late:
        return world
    return world._replace(late=tuple(late for late in world.late if may_land(world, late, rules)))


def change_book(world: World, group: int, *, change: Any, views: Translator, rules: Rules) -> tuple[World, Any]:
    """Compare-and-set of a book until answered: the world afterwards, and the new book or why there is none."""
    held = world.resvs[group - GROUP]
    if held is None:
        return world, None
    answer = change(rules.see(views.resv(group, held)))
    if not isinstance(answer, Book):
        return world, answer
    book = entries(answer)
    return (world if book == held.book else put_resv(world, group, held._replace(book=book))), answer


def unused_pod(world: World, base: int) -> int:
    """A UID for a pod of this name: one more than any that is mentioned."""
    found = {base - 1}
    for part in (
        *world.resvs,
        *world.requests,
        *world.schedulers,
        *world.binders,
        world.ghosts,
        world.late,
        world.plan,
    ):
        _uids(part, base, found)
    return max(found) + 1


def _uids(part: Any, base: int, found: set[int]) -> None:
    if isinstance(part, tuple):
        for item in part:
            _uids(item, base, found)
    elif type(part) is int:
        if base <= part < base + 10:
            found.add(part)
        elif base * VERSIONS <= part < (base + 10) * VERSIONS:
            found.add(part // VERSIONS)
