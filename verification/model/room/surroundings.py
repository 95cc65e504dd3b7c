"""What is not ours: kubelets, users, schedulers of others, crashes, and requests that land late."""

from __future__ import annotations

from collections.abc import Iterator

from verification.model.room.config import Config
from verification.model.room.evicting import Evicting
from verification.model.room.recording import Recording
from verification.model.room.state import (
    GONE,
    LEAVING,
    LIVE,
    Late,
    Leader,
    Pod,
    Step,
    World,
    free,
    put_leader,
    put_pod,
    spend,
    waits,
)


class Surroundings:
    """The rest of the world."""

    def __init__(self, config: Config, recording: Recording, evicting: Evicting) -> None:
        self._config = config
        self._recording = recording
        self._evicting = evicting

    def steps(self, world: World) -> Iterator[Step]:
        """Everything that may happen next."""
        for slot, pod in enumerate(world.pods):
            yield from self._pod(world, slot, pod)
        if world.left.foreigners:
            for node, capacity in enumerate(self._config.nodes):
                if free(world, node, capacity) > 0:
                    taken = (*world.foreign[:node], world.foreign[node] + 1, *world.foreign[node + 1 :])
                    after = spend(world, "foreigners")._replace(foreign=taken)
                    yield ("!others", "take a place of", f"n{node}"), after
        if world.left.crashes:
            for number, leader in enumerate(world.leaders):
                yield from self._crash(world, number, leader)
        for late in world.late:
            yield from self._late(world, late)

    def _pod(self, world: World, slot: int, pod: Pod) -> Iterator[Step]:
        name, left = "ABCDEFGH"[slot], world.left
        if pod.life == LEAVING and slot not in self._config.stayers:
            yield ("kubelet", "ends", name), put_pod(world, slot, pod._replace(life=GONE))
        if pod.life == LIVE and waits(pod) and left.goes:
            after = put_pod(spend(world, "goes"), slot, pod._replace(life=GONE))
            yield ("!user", "deletes", name), after
        if pod.life == LIVE and not waits(pod) and left.finishes:
            yield ("!pod", name, "finishes"), put_pod(spend(world, "finishes"), slot, pod._replace(life=GONE))
        if pod.life == GONE and left.recreates:
            after = put_pod(spend(world, "recreates"), slot, Pod(serial=pod.serial + 1))
            yield ("!user", "makes again", name), after

    def _crash(self, world: World, number: int, leader: Leader) -> Iterator[Step]:
        """A process dies, and another one begins: its requests are lost, or all still on their way."""
        fresh = put_leader(spend(world, "crashes"), number, Leader())
        yield ("!crash of leader", number), fresh
        late = [Late("evict", one) for one in leader.asked] + [Late("record", one) for one in leader.write]
        if late and world.left.lates:
            after = spend(fresh, "lates")
            yield ("!crash of leader", number, "its requests land later"), after._replace(late=(*after.late, *late))

    def _late(self, world: World, late: Late) -> Iterator[Step]:
        rest = list(world.late)
        rest.remove(late)
        without = world._replace(late=tuple(rest))
        yield ("late request", late.kind, "is given up"), without
        if late.kind == "evict":
            yield ("late eviction lands", "ABCDEFGH"[late.what[1].slot]), self._evicting.lands(without, *late.what)
        elif (landed := self._recording.lands(without, late.what)) is not None:
            yield ("late write of the record lands",), landed
