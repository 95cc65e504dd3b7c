"""What is around schedulers and binders: kubelets, device plugin, agents, reservations, users, and late writes."""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import server
from verification.model.config import Config, Rules
from verification.model.state import (
    AWAY,
    BACK,
    DEVICE,
    ENDED,
    FINISHED,
    GROUP,
    INCARNATIONS,
    LIVE,
    PENDING,
    POD,
    PRESENT,
    RUNNING,
    VERSIONS,
    Late,
    Pod,
    Resv,
    Step,
    World,
)


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
            yield ("kubelet", "never starts", group), server.put_resv(world, group, ended)
        elif resv.dev:
            if self._config.pulls:
                yield ("kubelet", "runs", group), self._run(world, group, resv, device=resv.dev)
        elif not any(group == behind for behind, _ in world.left_behind):
            yield from self._admit(world, group, resv)

    def _admit(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        devices = _choices(world, self._config.devices)
        for device in devices:
            if self._config.reporter:
                admitted = server.put_resv(world, group, resv._replace(dev=device))
                yield ("kubelet", "admits", group, device), admitted
            else:
                yield ("kubelet", "starts", group, device), self._run(world, group, resv, device=device)
        if not devices:
            yield ("kubelet", "refuses", group), server.put_resv(world, group, resv._replace(phase=ENDED))

    def _run(self, world: World, group: int, resv: Resv, *, device: int) -> World:
        """Its process runs; it tells at once, or ``slow_identity``."""
        if self._config.slow_identity:
            return server.put_resv(world, group, resv._replace(phase=RUNNING, dev=device, reported=False))
        started = resv._replace(phase=RUNNING, dev=device, uuid=device, reported=False)
        after = server.put_resv(world, group, started._replace(proven=resv.proven and resv.uuid == device))
        return server.forget_verified(after, resv.uid) if resv.uuid not in {0, device} else after


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
            after = server.tell_early(world, told, self._rules)
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
            if request is not None and server.pod(world, request.pod) is None:
                yield ("garbage collector", "BindRequest of", request.pod), server.put_request(world, slot, None)

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
                    after = server.vanish(after, slot)
            for at, resv in enumerate(world.resvs):
                if resv is not None and not resv.deleting:
                    after = server.put_resv(after, GROUP + at, resv._replace(deleting=True))
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
                yield ("kubelet", "ends reservation", group), server.put_resv(world, group, ended)
            elif world.left.evictions:
                left = world.left._replace(evictions=world.left.evictions - 1)
                ended = resv._replace(phase=ENDED, dev=0)
                after = server.put_resv(world, group, ended)._replace(left=left)
                yield ("!kubelet", "evicts reservation", group), after
        if resv.dev and not resv.deleting and world.left.swaps:
            yield from self._swap(world, group, resv)
        if not resv.deleting and not resv.book and world.left.forced:
            left = world.left._replace(forced=world.left.forced - 1)
            after = server.put_resv(world, group, resv._replace(deleting=True, forced=True))._replace(left=left)
            yield ("!user", "deletes by force idle reservation", group), after
        if not resv.deleting and not resv.book and world.left.tidies:
            left = world.left._replace(tidies=world.left.tidies - 1)
            after = server.put_resv(world, group, resv._replace(deleting=True))._replace(left=left)
            yield ("!user", "deletes idle reservation", group), after
        if not resv.deleting and world.left.unreserves:
            left = world.left._replace(unreserves=world.left.unreserves - 1)
            after = server.put_resv(world, group, resv._replace(deleting=True))._replace(left=left)
            yield ("!user", "deletes reservation", group), after

    def _swap(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        """A kubelet that lost its checkpoint starts the container again, on another device."""
        held = taken(world)
        left = world.left._replace(swaps=world.left.swaps - 1)
        for device in range(DEVICE, DEVICE + self._config.devices):
            if device not in held:
                restarted = resv._replace(dev=device, reported=resv.reported and resv.phase == PENDING)
                after = server.put_resv(world, group, restarted)._replace(left=left)
                yield ("!kubelet", "gives another device to", group, device), after

    def _announce(self, world: World, group: int, resv: Resv) -> Iterator[Step]:
        after = server.put_resv(world, group, resv._replace(uuid=resv.dev, proven=False))
        if self._rules.verified_until_changed:
            after = server.forget_verified(after, resv.uid)
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
            yield ("kubelet", "removes", pod.uid), server.put_pod(world, slot, None)
        elif pod.life != LIVE:
            ended = server.put_pod(world, slot, pod._replace(life=FINISHED))
            yield ("kubelet", "ends containers of", pod.uid), ended
        elif left.deletes:
            after = server.delete_pod(world, slot)._replace(left=left._replace(deletes=left.deletes - 1))
            yield ("!user", "deletes", pod.uid), after
        if pod.grant and pod.life != FINISHED and left.vanishes:
            after = server.vanish(world, slot)._replace(left=left._replace(vanishes=left.vanishes - 1))
            yield ("!user", "deletes by force", pod.uid), after
        if pod.life == LIVE and left.touches:
            after = server.put_pod(world, slot, pod)._replace(left=left._replace(touches=left.touches - 1))
            yield ("!user", "edits", pod.uid), after
        if pod.grant and pod.life == LIVE and left.finishes:
            ended = server.put_pod(world, slot, pod._replace(life=FINISHED))
            yield ("!pod", "finishes", pod.uid), ended._replace(left=left._replace(finishes=left.finishes - 1))

    def _recreate(self, world: World, slot: int) -> Iterator[Step]:
        """Another pod of the same name. Its UID is one that nothing speaks of any more."""
        uid = server.unused_pod(world, POD + slot * INCARNATIONS)
        left = world.left._replace(recreates=world.left.recreates - 1)
        pods = (*world.pods[:slot], Pod(uid, uid * VERSIONS), *world.pods[slot + 1 :])
        yield ("!user", "makes again", uid), world._replace(pods=pods, left=left)

    def _late(self, world: World, late: Late) -> Iterator[Step]:
        rest = list(world.late)
        rest.remove(late)
        world = world._replace(late=tuple(rest))
        yield ("late write", late.kind, "is given up"), world
        landed = server.lands(world, late, self._rules)
        if landed is not None:
            yield ("late write", late.kind, "lands", *late.what), landed
