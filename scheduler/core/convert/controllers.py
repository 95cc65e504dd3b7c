"""Which owner an object answers to."""

from __future__ import annotations

from sys import intern

from wire.core import ObjectMeta


def controller_uid(meta: ObjectMeta) -> str:
    """UID of the owner that controls an object, or "". Many objects share it: it is kept once."""
    return next((intern(owner.uid) for owner in meta.owner_references or () if owner.controller), "")
