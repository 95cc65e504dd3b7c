"""Binds claims that wait for their first consumer, as Kubernetes' PV controller and a provisioner do.

A claim is bound to the volume that names it. Where a scheduler has selected a node, a volume is made that this node can
use: in its zone if it has one, else on all nodes. Claims of other classes are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

import anyio

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import NODES, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kube.memory.types import ResourceType
from wire import names
from wire.storage import PersistentVolume, PersistentVolumeClaim

_log: Final = logging.getLogger(__name__)

#: As whom the API server knows it.
USER: Final = "system:serviceaccount:kube-system:persistent-volume-binder"
_KINDS: Final = frozenset({PERSISTENT_VOLUME_CLAIMS.plural, PERSISTENT_VOLUMES.plural})
_LATE_S: Final = 0.5


class ClaimBinding:
    """``fails``: whether no volume can be made for a claim (name) on a node; ``takes_s``: to make one.

    ``begin`` runs what it is given, with the first claim or volume: a world without them has no task for them.
    """

    usual_s: Final = 1.0

    def __init__(self, api: Api, begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        self.api = api
        self._begin = begin
        self._is_begun = False
        self.fails: Callable[[str, str], bool] = lambda _, __: False
        self.takes_s = self.usual_s
        self.is_off = False
        #: Since when a volume is being made, by the claim's UID and the node.
        self._since: dict[tuple[str, str], float] = {}
        self._news = anyio.Event()

    def take(self, kind: ResourceType, _raw: bytes, _is_gone: bool) -> None:
        """Take an object as the API server stores it."""
        if kind.plural not in _KINDS:
            return
        self._news.set()
        if not self._is_begun:
            self._is_begun = True
            self._begin(self.run)

    async def run(self) -> None:
        """Bind what can be bound after each change, until cancelled."""
        while True:
            await self._news.wait()
            self._news = anyio.Event()
            await anyio.sleep(_LATE_S)
            try:
                is_done = not self.is_off and not await self._look()
            except errors.ApiError as error:
                _log.warning("claims are not bound: %s", error)
                is_done = False
            if not is_done:
                self._news.set()

    async def _look(self) -> bool:
        """Bind what can be bound now; return whether a volume is being made."""
        volumes = (await self.api.list(PERSISTENT_VOLUMES)).items
        named = {ref.uid: each for each in volumes if (ref := each.spec.claim_ref) is not None and ref.uid}
        is_making = False
        for claim in (await self.api.list(PERSISTENT_VOLUME_CLAIMS)).items:
            if claim.spec.volume_name:
                continue
            own, node = named.get(claim.metadata.uid), (claim.metadata.annotations or {}).get(names.SELECTED_NODE)
            if own is not None:
                await self._bind(claim, own)
            elif node:
                is_making |= await self._is_making(claim, node)
        return is_making

    async def _bind(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        name = volume.metadata.name
        await self.api.patch(PERSISTENT_VOLUMES, name, {"status": {"phase": "Bound"}}, subresource="status")
        body = {"spec": {"volumeName": name}, "metadata": {"annotations": {names.BIND_COMPLETED: "yes"}}}
        await self._patch(claim, body)

    async def _is_making(self, claim: PersistentVolumeClaim, node: str) -> bool:
        since = self._since.setdefault((claim.metadata.uid, node), anyio.current_time())
        if anyio.current_time() < since + self.takes_s:
            return True
        terms = None if self.fails(claim.metadata.name, node) else await self._reach(node)
        if terms is None:
            taken_back = {"metadata": {"annotations": {names.SELECTED_NODE: None}}}
            await self._patch(claim, taken_back, resource_version=claim.metadata.resource_version)
        else:
            await self.api.create(PERSISTENT_VOLUMES, _volume(claim, terms))
        return False

    async def _reach(self, node: str) -> list[dict[str, Any]] | None:
        """Terms of the nodes that can use a volume that is made for a node, none: all; None: the node is gone."""
        try:
            labels = (await self.api.get(NODES, node)).metadata.labels or {}
        except errors.NotFound:
            return None
        zone = labels.get(names.ZONE_LABEL)
        match = [{"key": names.ZONE_LABEL, "operator": "In", "values": [zone]}]
        return [{"matchExpressions": match}] if zone else []

    async def _patch(self, claim: PersistentVolumeClaim, body: dict[str, Any], resource_version: str = "") -> None:
        meta = claim.metadata
        at = {"namespace": meta.namespace, "resource_version": resource_version}
        await self.api.patch(PERSISTENT_VOLUME_CLAIMS, meta.name, body, uid=meta.uid, **at)


def _volume(claim: PersistentVolumeClaim, terms: list[dict[str, Any]]) -> dict[str, Any]:
    meta, spec = claim.metadata, claim.spec
    return {
        "metadata": {"name": f"pvc-{meta.uid}"},
        "spec": {
            "capacity": {"storage": (spec.resources.requests or {}).get("storage", "0")},
            "accessModes": spec.access_modes or [],
            "storageClassName": spec.storage_class_name or "",
            "volumeMode": spec.volume_mode or "Filesystem",
            "claimRef": {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid},
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if terms else {}),
        },
    }
