"""Which owner an object answers to."""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Final

from scheduler.core.convert import bounds
from wire.core import ObjectMeta, OwnerReference

#: As hexadecimal digits these are fewer characters than a UID has, however long a reference is.
_DIGEST_BYTES: Final = 16
#: Pods of one owner come one after another. Longer references than any object's are not remembered.
_REMEMBERED: Final = 1024
_LONGEST: Final = 512


def identity(namespace: str, owner: OwnerReference) -> str:
    """Return what tells an owner from all others: a digest of its group, kind, namespace, name and UID.

    A tenant writes what it likes into the references of its own pods. By the UID alone, a pod would share what is
    known of another namespace's workload: which nodes refused it, how often it was evicted, what its Job says.
    """
    version, kind, name, uid = owner.api_version, owner.kind, owner.name, owner.uid
    is_usual = len(version) + len(kind) + len(name) + len(uid) <= _LONGEST
    return (_remembered if is_usual else _digest)(namespace, version, kind, name, uid)


def _digest(*parts: str) -> str:
    namespace, api_version, *others = parts
    group = api_version.rpartition("/")[0]
    # No text of JSON has a lone surrogate once it is decoded.
    return intern(blake2b("\0".join((namespace, group, *others)).encode(), digest_size=_DIGEST_BYTES).hexdigest())


_remembered: Final = lru_cache(_REMEMBERED)(_digest)


def controller_of(meta: ObjectMeta) -> str:
    """Identity of the owner that controls an object, or ""."""
    for owner in meta.owner_references or ():
        if owner.controller:
            return identity(meta.namespace, owner)
    return ""


def controller_uid(meta: ObjectMeta) -> str:
    """UID of the owner that controls an object, or "": to be compared with the UID of a pod of the same namespace."""
    return next((bounds.name(owner.uid) for owner in meta.owner_references or () if owner.controller), "")
