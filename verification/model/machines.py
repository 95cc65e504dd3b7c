"""What is around schedulers and binders: the API server, kubelets, agents, reservations, users, and late writes.

A write does to the objects what protocol.md says ("Facts of the API server"), with its preconditions. A book is changed
by compare-and-set until it is answered. Events between the read and a write that succeeds have changed nothing in that
object, so reading and writing are one step here, where the write carries its version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from gpu.book import Book
from verification.model.config import Config, Rules
from verification.model.state import (
    ATTEMPT,
    AWAY,
    BACK,
    DELETING,
    DEVICE,
    ENDED,
    FINISHED,
    GROUP,
    INCARNATIONS,
    LIVE,
    NAMES,
    PENDING,
    POD,
    PRESENT,
    RESERVATION,
    RUNNING,
    VERSIONS,
    Entry,
    Ghost,
    Holding,
    Late,
    Pod,
    Request,
    Resv,
    Step,
    Translator,
    World,
    entries,
    slot_of,
)

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
def pod_of(world: World, uid: int) -> Pod | None:
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
    there = pod_of(world, uid)
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


def taken(world: World) -> set[int]:
    """Devices that kubelet gives to nobody else: those of reservations, and of such as it has not missed yet."""
    return {one.dev for one in world.resvs if one is not None} | {device for _, device in world.left_behind}


class Starting:
    """How kubelet takes up a reservation that is Pending: admission with a device, then its process, or neither.

    Without a node agent nobody sees the moment between the two, and both are one step.
    """

    def __init__(self, config: Config) -> None:
        self._config = config

    def steps(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        """What may become of one of them."""
        if resv.deleting:
            ended = resv._replace(phase=ENDED, dev=0)
            yield ("kubelet", "never starts", group), put_resv(world, group, ended)
        elif resv.dev:
            if self._config.pulls:
                yield ("kubelet", "runs", group), self._run(world, group, resv, device=resv.dev)
        elif not any(group == behind for behind, _ in world.left_behind):
            yield from self._admit(world, group, resv)

    def _admit(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        devices = _choices(world, self._config.devices)
        for device in devices:
            if self._config.reporter:
                admitted = put_resv(world, group, resv._replace(dev=device))
                yield ("kubelet", "admits", group, device), admitted
            else:
                yield ("kubelet", "starts", group, device), self._run(world, group, resv, device=device)
        if not devices:
            yield ("kubelet", "refuses", group), put_resv(world, group, resv._replace(phase=ENDED))

    def _run(self, world: World, group: int, resv: Resv, *, device: int) -> World:
        """Its process runs; it tells at once, or ``slow_identity``."""
        if self._config.slow_identity:
            return put_resv(world, group, resv._replace(phase=RUNNING, dev=device, reported=False))
        started = resv._replace(phase=RUNNING, dev=device, uuid=device, reported=False)
        after = put_resv(world, group, started._replace(proven=resv.proven and resv.uuid == device))
        return forget_verified(after, resv.uid) if resv.uuid not in {0, device} else after


def _choices(world: World, devices: int) -> list[int]:
    """Free devices that something speaks of, and one of the others, which are all alike."""
    held = taken(world)
    free = [DEVICE + at for at in range(devices) if DEVICE + at not in held]
    used = {holding[2] for pod in world.pods if pod is not None for holding in pod.holdings}
    used |= {one.uuid for one in world.resvs if one is not None}
    used |= {holding[2] for ghost in world.ghosts for holding in ghost.holdings}
    used |= {late.what[-1] for late in world.late if late.kind in {"identity", "reporter"}}  # type: ignore[misc]  # a device
    unused = [device for device in free if device not in used]
    return [*(device for device in free if device in used), *unused[:1]]


class Reporter:
    """The agent of the node, if it has one: tells which device kubelet gave to a reservation, before its process runs.

    It asks kubelet by name (protocol.md, Told early). Until kubelet has heard that a predecessor was deleted by force,
    the name means that one.
    """

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def steps(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        """What it may tell of one reservation: at once, or by a patch that lands later, if at all."""
        if not self._config.reporter or (resv.uuid and not resv.reported):
            return
        for device in self._named(world, group, resv):
            if device == resv.uuid:
                continue
            told = Late("reporter", (group, resv.uid, resv.rv, device))
            after = tell_early(world, told, self._rules)
            if after is not None:
                yield ("agent", "tells early", group, device), after
            if world.left.late_words:
                left = world.left._replace(late_words=world.left.late_words - 1)
                label = ("!agent", "tells early, but later", group, device)
                yield label, world._replace(late=(*world.late, told), left=left)

    def _named(self, world: World, group: int, resv: Resv) -> tuple[int, ...]:
        """What kubelet answers to the reservation's name."""
        if resv.phase == ENDED and not self._rules.reporter_of_living:
            # The one that it had, and that others may have by now.
            return tuple(range(DEVICE, DEVICE + self._config.devices))
        if resv.phase != PENDING or (self._rules.reporter_after_start and not resv.dev):
            return ()
        before = tuple(device for behind, device in world.left_behind if behind == group)
        return before or ((resv.dev,) if resv.dev else ())


class Machines:
    """The rest of the world."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules
        self._starting = Starting(config)
        self._reporter = Reporter(config, rules)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        yield from self._node(world)
        for at, resv in enumerate(world.resvs):
            if resv is not None:
                yield from self._reservation(world, GROUP + at, resv)
                yield from self._reporter.steps(world, GROUP + at, resv)
        for slot, pod in enumerate(world.pods):
            if pod is not None:
                yield from self._pod(world, slot, pod)
            elif world.left.recreates:
                yield from self._recreate(world, slot)
        yield from self._left_behind(world)
        for late in world.late:
            yield from self._late(world, late)
        for slot, request in enumerate(world.requests):
            if request is not None and pod_of(world, request.pod) is None:
                yield ("garbage collector", "BindRequest of", request.pod), put_request(world, slot, None)

    def _left_behind(self, world: World) -> Iterator[Step]:
        """Kubelet ends what was deleted by force."""
        for group, device in world.left_behind:
            others = tuple(one for one in world.left_behind if one != (group, device))
            yield ("kubelet", "hears that reservation is gone", group), world._replace(left_behind=others)
        for ghost in world.ghosts:
            rest = tuple(one for one in world.ghosts if one is not ghost)
            yield ("kubelet", "ends what is left of", ghost.uid), world._replace(ghosts=rest)

    # --- the node ----------------------------------------------------------------------------------------------------
    def _node(self, world: World) -> Iterator[Step]:
        """Its object goes while the machine lives: pods that name it are deleted by force, and run on."""
        left = world.left
        if left.node == AWAY:
            yield ("kubelet", "registers again"), world._replace(left=left._replace(node=BACK))
        elif left.node_losses and left.node == PRESENT:
            after = world
            for slot, pod in enumerate(world.pods):
                if pod is not None and pod.grant and pod.life != FINISHED:
                    after = vanish(after, slot)
            for at, resv in enumerate(world.resvs):
                if resv is not None and not resv.deleting:
                    after = put_resv(after, GROUP + at, resv._replace(deleting=True))
            after = after._replace(left=left._replace(node_losses=left.node_losses - 1, node=AWAY))
            yield ("!user", "deletes the Node object"), after

    # --- reservations ------------------------------------------------------------------------------------------------
    def _reservation(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        if resv.phase == PENDING:
            yield from self._starting.steps(world, group, resv)
        elif resv.phase == RUNNING:
            if resv.uuid != resv.dev and not resv.reported:
                # It tells at each start: what was written over its word stays until the next one.
                yield from self._announce(world, group, resv)
            if resv.deleting:
                ended = resv._replace(phase=ENDED, dev=0)
                yield ("kubelet", "ends reservation", group), put_resv(world, group, ended)
            elif world.left.evictions:
                left = world.left._replace(evictions=world.left.evictions - 1)
                ended = resv._replace(phase=ENDED, dev=0)
                after = put_resv(world, group, ended)._replace(left=left)
                yield ("!kubelet", "evicts reservation", group), after
        if resv.dev and not resv.deleting and world.left.swaps:
            yield from self._swap(world, group, resv)
        if not resv.deleting and not resv.book and world.left.forced:
            left = world.left._replace(forced=world.left.forced - 1)
            after = put_resv(world, group, resv._replace(deleting=True, forced=True))._replace(left=left)
            yield ("!user", "deletes by force idle reservation", group), after
        if not resv.deleting and not resv.book and world.left.tidies:
            left = world.left._replace(tidies=world.left.tidies - 1)
            after = put_resv(world, group, resv._replace(deleting=True))._replace(left=left)
            yield ("!user", "deletes idle reservation", group), after
        if not resv.deleting and world.left.unreserves:
            left = world.left._replace(unreserves=world.left.unreserves - 1)
            after = put_resv(world, group, resv._replace(deleting=True))._replace(left=left)
            yield ("!user", "deletes reservation", group), after

    def _swap(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        """A kubelet that lost its checkpoint starts the container again, on another device."""
        held = taken(world)
        left = world.left._replace(swaps=world.left.swaps - 1)
        for device in range(DEVICE, DEVICE + self._config.devices):
            if device not in held:
                restarted = resv._replace(dev=device, reported=resv.reported and resv.phase == PENDING)
                after = put_resv(world, group, restarted)._replace(left=left)
                yield ("!kubelet", "gives another device to", group, device), after

    def _announce(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        after = put_resv(world, group, resv._replace(uuid=resv.dev, proven=False))
        if self._rules.verified_until_changed:
            after = forget_verified(after, resv.uid)
        yield ("reservation", "says", group, resv.dev), after
        if world.left.lates:
            left = world.left._replace(lates=world.left.lates - 1)
            late = Late("identity", (group, resv.uid, resv.dev))
            yield (
                ("!reservation", "says, and again later", group, resv.dev),
                after._replace(late=(*after.late, late), left=left),
            )

    # --- pods --------------------------------------------------------------------------------------------------------
    def _pod(self, world: World, slot: int, pod: Pod) -> Iterator[Step]:
        left = world.left
        if pod.life == FINISHED:
            yield ("kubelet", "removes", pod.uid), put_pod(world, slot, None)
        elif pod.life != LIVE:
            ended = put_pod(world, slot, pod._replace(life=FINISHED))
            yield ("kubelet", "ends containers of", pod.uid), ended
        elif left.deletes:
            after = delete_pod(world, slot)._replace(left=left._replace(deletes=left.deletes - 1))
            yield ("!user", "deletes", pod.uid), after
        if pod.grant and pod.life != FINISHED and left.vanishes:
            after = vanish(world, slot)._replace(left=left._replace(vanishes=left.vanishes - 1))
            yield ("!user", "deletes by force", pod.uid), after
        if pod.life == LIVE and left.touches:
            after = put_pod(world, slot, pod)._replace(left=left._replace(touches=left.touches - 1))
            yield ("!user", "edits", pod.uid), after
        if pod.grant and pod.life == LIVE and left.finishes:
            ended = put_pod(world, slot, pod._replace(life=FINISHED))
            yield ("!pod", "finishes", pod.uid), ended._replace(left=left._replace(finishes=left.finishes - 1))

    def _recreate(self, world: World, slot: int) -> Iterator[Step]:
        """Another pod of the same name. Its UID is one that nothing speaks of any more."""
        uid = unused_pod(world, POD + slot * INCARNATIONS)
        left = world.left._replace(recreates=world.left.recreates - 1)
        pods = (*world.pods[:slot], Pod(uid, uid * VERSIONS), *world.pods[slot + 1 :])
        yield ("!user", "makes again", uid), world._replace(pods=pods, left=left)

    def _late(self, world: World, late: Late) -> Iterator[Step]:
        rest = list(world.late)
        rest.remove(late)
        world = world._replace(late=tuple(rest))
        yield ("late write", late.kind, "is given up"), world
        landed = lands(world, late, self._rules)
        if landed is not None:
            yield ("late write", late.kind, "lands", *late.what), landed
