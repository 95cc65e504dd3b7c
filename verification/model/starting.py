"""How kubelet takes up a reservation: admission with a device, then its process, or neither.

Without a node agent nobody sees the moment between the two, and both are one step.
"""

from __future__ import annotations

from collections.abc import Iterator

from verification.model import server
from verification.model.config import Config
from verification.model.state import DEVICE, ENDED, RUNNING, Resv, Step, World


def taken(world: World) -> set[int]:
    """Devices that kubelet gives to nobody else: those of reservations, and of such as it has not missed yet."""
    return {one.dev for one in world.resvs if one is not None} | {device for _, device in world.left_behind}


class Starting:
    """Kubelet and reservations that are Pending."""

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
            if self._config.witness:
                admitted = server.put_resv(world, group, resv._replace(dev=device))
                yield ("kubelet", "admits", group, device), admitted
            else:
                yield ("kubelet", "starts", group, device), self._run(world, group, resv, device=device)
        if not devices:
            yield ("kubelet", "refuses", group), server.put_resv(world, group, resv._replace(phase=ENDED))

    def _run(self, world: World, group: int, resv: Resv, *, device: int) -> World:
        """Its process runs; it tells at once, or ``slow_identity``."""
        if self._config.slow_identity:
            return server.put_resv(world, group, resv._replace(phase=RUNNING, dev=device, witnessed=False))
        started = resv._replace(phase=RUNNING, dev=device, uuid=device, witnessed=False)
        after = server.put_resv(world, group, started._replace(proven=resv.proven and resv.uuid == device))
        return server.forget_verified(after, resv.uid) if resv.uuid not in {0, device} else after


def _choices(world: World, devices: int) -> list[int]:
    """Free devices that something speaks of, and one of the others, which are all alike."""
    held = taken(world)
    free = [DEVICE + at for at in range(devices) if DEVICE + at not in held]
    used = {holding[2] for pod in world.pods if pod is not None for holding in pod.holdings}
    used |= {one.uuid for one in world.resvs if one is not None}
    used |= {holding[2] for ghost in world.ghosts for holding in ghost.holdings}
    used |= {late.what[-1] for late in world.late if late.kind in {"identity", "witness"}}  # type: ignore[misc]  # a device
    unused = [device for device in free if device not in used]
    return [*(device for device in free if device in used), *unused[:1]]
