"""Binds the claims of pods that were placed on records, as the PV controller and a provisioner would, at once."""

from __future__ import annotations

import msgspec

from scheduler.core.convert.volumes import VolumeRecord
from scheduler.core.model.plan import Placement
from scheduler.core.nodes.storage import Storage


def bind(storage: Storage, placement: Placement) -> None:
    """Bind each claim to the volume that was chosen, or to one that is made, which all nodes can use."""
    for choice in placement.volumes:
        key = placement.namespace, choice.claim
        claim, volume = storage.claims.get(key), storage.volumes.get(choice.volume)
        if claim is None:
            continue
        made = VolumeRecord(name=f"pvc-{choice.claim_uid}") if volume is None else volume
        storage.volumes.put(msgspec.structs.replace(made, claim=key, offer=None))
        storage.claims.put(msgspec.structs.replace(claim, volume=made.name, is_bound=True, need=None))
