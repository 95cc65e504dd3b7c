"""etcd is restored from a snapshot: the API server is what it was some time ago, and the machines are not.

What was created since the snapshot is gone, what was deleted is there again, what was bound is not. Kubelets end what
the API server does not know any more, and run what it has again, each in its own time. Until they have, a device may be
used by a pod that nobody knows of, so what is said of devices and bindings (``UNDONE``) is not judged meanwhile: no
scheduler could know. What is promised afterwards is in docs/safety.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, ClassVar, Final

import anyio
from typing_extensions import override

from verification.hostile.faults.evictions import let_go
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.objects import install
from verification.hostile.faults.timed import Timed
from wire import names

#: What is not judged from the restore until the machines have caught up: devices are used by pods that are unknown (S1,
#: S2), pods run elsewhere than where they are bound, or are bound no more (S3, S5), a gang is in part what it was (S4),
#: a gang's rest is evicted by who saw another gang (S7), books are older than the use of the devices (S8), ledgers
#: are of what is undone (S12), and so are the record of intents (S13, S14) and claims (S15 to S17). S10 says no more.
UNDONE: Final = frozenset({"S1", "S2", "S3", "S4", "S5", "S7", "S8", "S10", "S12", "S13", "S14", "S15", "S16", "S17"})
_LOOK_S: Final = 0.25


class _Restored(Timed, frozen=True, kw_only=True):
    """The snapshot is taken at ``at_s`` and restored ``undone_s`` later, with versions that go on (--bump-revision)."""

    undone_s: float

    def _restore(self, ground: Ground, snapshot: int) -> None:
        """Set the API server back. What was on its way to it is lost, and its watchers have to list again."""
        for kubelet in ground.world.nodes.kubelets.values():
            kubelet.history_set_back()
        ground.server.restore(snapshot, lambda call: call.user != "observer")

    async def _machines_caught_up(self, ground: Ground) -> None:
        """Wait until each machine runs what the API server has it run, and nothing else, while this fault lasts.

        First what the snapshot lacks of the installation is made again, as an administrator does, and finalizers that
        it brought back are taken off by whose they are.
        """
        nodes = ground.world.nodes
        await install(ground)
        await let_go(ground)
        for name in nodes.kubelets:
            await ground.insist(partial(nodes.register, name))
        with anyio.move_on_after(ground.left_s(self.end_s)):
            while any(_differences(ground)):  # noqa: ASYNC110 - machines are plain data
                await anyio.sleep(_LOOK_S)


class EtcdRestored(_Restored, frozen=True, kw_only=True, tag="etcd-restored"):
    """A restore as docs/operate.md has it: the components are stopped until the machines have caught up.

    Everything is promised from then on. Until then ``UNDONE`` is not judged, nor later where the machines do not catch
    up in time, because another fault parts one of them from the API server.
    """

    @override
    async def _happen(self, ground: Ground) -> None:
        snapshot = ground.server.resource_version
        await anyio.sleep(self.undone_s)
        stopped = [each for each in ground.components.values() if ground.crash(each)]
        with ground.world.checker.findings.excusing(UNDONE) as excuse:
            self._restore(ground, snapshot)
            await self._machines_caught_up(ground)
            excuse.is_over = not any(_differences(ground))
        for component in stopped:
            await ground.start_again(component, pause_s=0.0)


class EtcdRestoredUnderWork(_Restored, frozen=True, kw_only=True, tag="etcd-restored-live"):
    """A restore under components that nobody stopped.

    They notice it, by their lease or by the next list, and begin again. Until then, and until the machines have caught
    up, they place pods where devices are used, so ``UNDONE`` can't be held. Liveness is promised, and that nothing is
    left.
    """

    unpromised: ClassVar[frozenset[str]] = UNDONE

    @override
    async def _happen(self, ground: Ground) -> None:
        snapshot = ground.server.resource_version
        await anyio.sleep(self.undone_s)
        self._restore(ground, snapshot)
        await self._machines_caught_up(ground)


def _differences(ground: Ground) -> Iterator[str]:
    """Pods of which a machine and the API server do not say the same, by name or UID.

    One that the API server does not have there, and that runs or is being started; one that runs by its status only;
    a reservation that does not run yet; and one that the machine ends, as it was deleted at a time that is undone. For
    all but the first the device of a restored reservation may be free, or become another one.
    """
    pods = {pod["metadata"]["uid"]: pod for pod in ground.world.pods}
    bound = {uid: pod["spec"].get("nodeName") for uid, pod in pods.items()}
    running = ground.world.nodes.witness.running
    yield from (each.pod for each in running if bound.get(each.pod_uid) != each.node)
    for name, kubelet in ground.world.nodes.kubelets.items():
        yield from (uid for uid in sorted(kubelet.intake.active) if bound.get(uid) != name)
        yield from (uid for uid in kubelet.ending if uid in pods and "deletionTimestamp" not in pods[uid]["metadata"])
    live = {(each.pod_uid, each.container) for each in running}
    for uid, pod in pods.items():
        yield from (uid for container in _to_run(pod) if (uid, container) not in live)


def _to_run(pod: dict[str, Any]) -> Iterator[str]:
    """Containers that run by their status, and those of a reservation that has not ended."""
    status, spec = pod.get("status") or {}, pod["spec"]
    is_live = spec.get("nodeName") and status.get("phase") not in {names.SUCCEEDED, names.FAILED}
    if is_live and pod["metadata"]["namespace"] == names.RESERVATION_NAMESPACE:
        yield from (container["name"] for container in spec["containers"])
    for told in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        if "running" in (told.get("state") or {}):
            yield told["name"]
