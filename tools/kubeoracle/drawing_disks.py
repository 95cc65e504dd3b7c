"""Disks that pods name in their volumes, of few names, so that they are the same now and then."""

from __future__ import annotations

import random
from typing import Any

Spec = dict[str, Any]


def disks(r: random.Random, spec: Spec) -> set[str]:
    """One or two disks of each kind that two pods on a node may not share, to be read or written."""
    drawn = [_disk(r) for _ in range(r.choice((1, 1, 2)))]
    listed = spec.setdefault("volumes", [])
    listed += [{"name": f"d{number}", **source} for number, source in enumerate(drawn)]
    return {f"disks {kind}" for source in drawn for kind in source}


def _disk(r: random.Random) -> Spec:
    read_only = r.random() < 0.3
    match r.randint(0, 3):
        case 0:
            return {"gcePersistentDisk": {"pdName": r.choice("ab"), "readOnly": read_only}}
        case 1:
            return {"awsElasticBlockStore": {"volumeID": r.choice("ab"), "readOnly": read_only}}
        case 2:
            return {
                "iscsi": {"targetPortal": "t", "iqn": r.choice("ab"), "lun": r.randint(0, 1), "readOnly": read_only}
            }
        case _:
            image = {"pool": r.choice("rrrrp"), "image": r.choice("iiiij"), "readOnly": read_only}
            return {"rbd": {"monitors": r.sample("mno", 2 if r.random() < 0.8 else 1), **image}}
