"""The two writes that have a claim bound, as kube-scheduler makes them; the PV controller or a provisioner goes on.

Either is a compare-and-set on what was read, so another scheduler that chooses for the same claim or volume is not
overwritten. Both can be repeated: what says already what is wanted is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import anyio

from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from scheduler.commit.until_written import NotWritten, until_written
from scheduler.core.model.plan import Placement
from scheduler.core.model.pod_class import VolumeChoice
from wire import names
from wire.core import ObjectReference
from wire.storage import PersistentVolume, PersistentVolumeClaim

_GONE: Final = "the claim is gone"


async def choose(
    api: Api,
    placement: Placement,
    choice: VolumeChoice,
    *,
    limiter: anyio.CapacityLimiter,
    is_wanted: Callable[[Placement], bool],
) -> None:
    """Write what was chosen for a claim, until the server has answered. Raises NotWritten."""
    await until_written(
        partial(_claim_volume if choice.volume else _select_node, api, placement, choice),
        named=f"claim {choice.claim}",
        changed="VolumeChanged",
        limiter=limiter,
        is_wanted=partial(is_wanted, placement),
    )


async def _select_node(api: Api, placement: Placement, choice: VolumeChoice) -> None:
    claim = await _read_claim(api, placement, choice)
    selected = (claim.metadata.annotations or {}).get(names.SELECTED_NODE, "")
    if claim.spec.volume_name or selected == choice.node:
        return
    if selected:
        raise NotWritten(f"VolumeChanged: claim {choice.claim} is provisioned for node {selected}", is_overtaken=True)
    await api.patch(
        PERSISTENT_VOLUME_CLAIMS,
        choice.claim,
        {"metadata": {"annotations": {names.SELECTED_NODE: choice.node}}},
        namespace=placement.namespace,
        uid=choice.claim_uid,
        resource_version=claim.metadata.resource_version,
    )


async def _claim_volume(api: Api, placement: Placement, choice: VolumeChoice) -> None:
    claim = await _read_claim(api, placement, choice)
    if claim.spec.volume_name:
        return
    volume = await _read_volume(api, choice)
    ref = volume.spec.claim_ref
    if ref is not None and not _names(ref, placement, choice):
        whose = f"claim {ref.name}" if ref.namespace == placement.namespace else "a claim of another namespace"
        because = f"VolumeTaken: persistent volume {choice.volume} is for {whose}"
        raise NotWritten(because, is_overtaken=True)
    if ref is not None and ref.uid:
        return
    by_us = {} if ref is not None else {"annotations": {names.BOUND_BY_CONTROLLER: "yes"}}
    await api.patch(
        PERSISTENT_VOLUMES,
        choice.volume,
        {"metadata": by_us, "spec": {"claimRef": _reference(claim)}},
        uid=volume.metadata.uid,
        resource_version=volume.metadata.resource_version,
    )


async def _read_claim(api: Api, placement: Placement, choice: VolumeChoice) -> PersistentVolumeClaim:
    try:
        claim = await api.get(PERSISTENT_VOLUME_CLAIMS, choice.claim, namespace=placement.namespace)
    except NotFound:
        raise NotWritten(f"VolumeChanged: {_GONE}: {choice.claim}", is_overtaken=True) from None
    if claim.metadata.uid != choice.claim_uid or claim.metadata.deletion_timestamp is not None:
        raise NotWritten(f"VolumeChanged: {_GONE}: {choice.claim}", is_overtaken=True)
    return claim


async def _read_volume(api: Api, choice: VolumeChoice) -> PersistentVolume:
    try:
        volume = await api.get(PERSISTENT_VOLUMES, choice.volume)
    except NotFound:
        because = f"VolumeTaken: persistent volume {choice.volume} is gone"
        raise NotWritten(because, is_overtaken=True) from None
    if volume.metadata.deletion_timestamp is not None:
        raise NotWritten(f"VolumeTaken: persistent volume {choice.volume} is being deleted", is_overtaken=True)
    return volume


def _names(ref: ObjectReference, placement: Placement, choice: VolumeChoice) -> bool:
    same = (ref.namespace, ref.name) == (placement.namespace, choice.claim)
    return same and ref.uid in {"", choice.claim_uid}


def _reference(claim: PersistentVolumeClaim) -> dict[str, Any]:
    meta = claim.metadata
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
    }
