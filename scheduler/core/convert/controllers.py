"""Which owner an object answers to."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import Final

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
    parts = (namespace, owner.api_version.rpartition("/")[0], owner.kind, owner.name, owner.uid)
    return (_remembered if sum(map(len, parts)) <= _LONGEST else _digest)(*parts)


def _digest(*parts: str) -> str:
    # No text of JSON has a lone surrogate once it is decoded.
    return intern(blake2b("\0".join(parts).encode(), digest_size=_DIGEST_BYTES).hexdigest())


_remembered: Final[Callable[..., str]] = lru_cache(_REMEMBERED)(_digest)


def controller_of(meta: ObjectMeta) -> str:
    """Identity of the owner that controls an object, or ""."""
    return next((identity(meta.namespace, owner) for owner in meta.owner_references or () if owner.controller), "")


def controller_uid(meta: ObjectMeta) -> str:
    """UID of the owner that controls an object, or "": to be compared with the UID of a pod of the same namespace."""
    return next((intern(owner.uid) for owner in meta.owner_references or () if owner.controller), "")
