"""What is not ours: kubelets and device plugin, the reservation process, users, and writes that land late."""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import server
from verification.model.config import Config
from verification.model.rules import Rules
from verification.model.starting import Starting, taken
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
from verification.model.witnessing import Witness


class Machines:
    """The rest of the world."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules
        self._starting = Starting(config)
        self._witness = Witness(config, rules)

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        yield from self._node(world)
        for at, resv in enumerate(world.resvs):
            if resv is not None:
                yield from self._reservation(world, GROUP + at, resv)
                yield from self._witness.steps(world, GROUP + at, resv)
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
            if resv.uuid != resv.dev and not resv.witnessed:
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
                restarted = resv._replace(dev=device, witnessed=resv.witnessed and resv.phase == PENDING)
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
