"""Objects that somebody deletes under us: namespaces and leases."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

import anyio
from typing_extensions import override

from kube.client import errors
from kube.client.resources import LEASES, NAMESPACES, PODS
from simulator import installation
from verification.hostile.actions import NAMESPACE
from verification.hostile.faults.ground import Ground
from verification.hostile.faults.timed import LOST_DEVICE, Timed
from wire import names

_LOOK_S: Final = 0.5


class NamespaceDeleted(Timed, frozen=True, kw_only=True, tag="namespace-deleted"):
    """The users' namespace is deleted with all that is in it; a user who needs it later creates it again.

    Everything is promised: what its pods had is free when they have ended, and while it goes nothing can be created.
    """

    @override
    async def _happen(self, ground: Ground) -> None:
        await ground.insist(lambda: ground.api.delete(NAMESPACES, NAMESPACE))


class ReservationsDeleted(Timed, frozen=True, kw_only=True, tag="reservations-deleted"):
    """The namespace of the reservations is deleted under their tenants; at the end somebody installs it again.

    What still keeps it from going then is taken out of the way by hand. Devices are lost as their reservations go.
    """

    unpromised: ClassVar[frozenset[str]] = LOST_DEVICE

    @override
    async def _happen(self, ground: Ground) -> None:
        await ground.insist(lambda: ground.api.delete(NAMESPACES, names.RESERVATION_NAMESPACE))
        await anyio.sleep(self.for_s)
        await install(ground)


async def install(ground: Ground) -> None:
    """Make the namespace of the reservations and its account where they are not there, once an old one is gone."""
    while not await _is_home(ground):
        await _clear(ground)
        await anyio.sleep(_LOOK_S)


async def _is_home(ground: Ground) -> bool:
    """Install the namespace and its account, unless the old one still goes."""
    try:
        found = await ground.api.get(NAMESPACES, names.RESERVATION_NAMESPACE)
        if found.metadata.deletion_timestamp:
            return False
    except errors.NotFound:
        await ground.insist(lambda: ground.api.create(NAMESPACES, installation.named(names.RESERVATION_NAMESPACE)))
    account, namespace = installation.named(names.RESERVATION_SERVICE_ACCOUNT), names.RESERVATION_NAMESPACE
    await ground.insist(lambda: ground.api.create(installation.SERVICE_ACCOUNTS, account, namespace=namespace))
    return True


async def _clear(ground: Ground) -> None:
    api, body = ground.lawless, {"metadata": {"finalizers": None}}
    listing = await ground.api.list(PODS, namespace=names.RESERVATION_NAMESPACE, skip_undecodable=True)
    for meta in [pod.metadata for pod in listing.items]:
        at = {"namespace": meta.namespace, "uid": meta.uid}
        await ground.insist(partial(api.patch, PODS, meta.name, body, **at))
        await ground.insist(partial(api.delete, PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_s=0))


class LeaseDeleted(Timed, frozen=True, kw_only=True, tag="lease-deleted"):
    """The lease of the leader of ``role`` is deleted every ``every_s``. Where there is no election nothing happens.

    Everything is promised: a leader that lost its lease writes nothing more once its own time is over.
    """

    role: str
    every_s: float

    @override
    async def _happen(self, ground: Ground) -> None:
        api, name = ground.api, f"moorage-{self.role}"
        with anyio.move_on_after(self.for_s):
            while True:
                await ground.insist(lambda: api.delete(LEASES, name, namespace=names.SYSTEM_NAMESPACE))
                await anyio.sleep(self.every_s)
