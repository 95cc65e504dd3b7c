"""Reads owners, each once for a while, for all callers. Only what rules read of them is kept."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.errors import BadName, Forbidden, NotFound
from kube.client.resources import Resource
from podgrouper.core.answers import Json
from podgrouper.core.foreign import gangs
from podgrouper.core.kinds import OTHER, kind_of
from podgrouper.core.owner_chain import Absent
from podgrouper.core.projection import owner_as_read
from podgrouper.read.discovery import Discovery, Object
from wire.core import OwnerReference

_log: Final = logging.getLogger(__name__)

#: A kind that may not be read in a namespace is not asked for again there sooner: rights change rarely.
_FORBIDDEN_S: Final = 600.0
#: Most (namespace, kind) of which that is kept.
_MOST_FORBIDDEN: Final = 10_000
#: What is kept of owners, in all and of one namespace; what is over is read again for each pod.
KEPT_BYTES: Final = 64 << 20
NAMESPACE_BYTES: Final = KEPT_BYTES // 8
#: Of an entry without its object: a key of at most 900 characters, which may have four bytes each, and the tables.
_ENTRY_BYTES: Final = 4096


#: Identity of what is read: namespace, apiVersion, kind, name, UID. The API server vouches for none of a reference's
#: parts, so a memo by fewer of them would answer one tenant with what another's reference, or its lack of rights, said.
Key = tuple[str, str, str, str, str]


class _Kept(msgspec.Struct, frozen=True, gc=False):
    """What was read, as JSON: its bytes are what it takes, and are counted."""

    found: bytes | Absent
    #: When its reading began: it is not older than that.
    read_at: float
    until: float

    @property
    def size(self) -> int:
        return _ENTRY_BYTES + (len(self.found) if isinstance(self.found, bytes) else 0)


class Owners:
    """Owners, and objects that rules ask for by name. ``keep_s``: what was read is used for so long.

    All are of the namespace of the pod that they are read for. That an object does not exist is never kept: it may be
    there in the next moment.
    """

    def __init__(self, api: Api, *, keep_s: float) -> None:
        self._api = api
        self._keep_s = keep_s
        self._discovery = Discovery(api)
        self._kept = _Memo()
        #: What is being read right now, so that it is read once.
        self._reading: dict[Key, anyio.Event] = {}
        #: (namespace, apiVersion, kind) that may not be read, until when that is taken for granted.
        self._forbidden: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        #: Kinds of which that was said.
        self._told: set[tuple[str, str]] = set()

    async def read(self, reference: OwnerReference, namespace: str, *, since: float = -math.inf) -> Json | Absent:
        """Return an object of a namespace. A reference without a UID asks for whichever has its name. Raises ApiError.

        What is returned is not older than ``since`` (event loop's time).

        FORBIDDEN, too, where its kind is none of a namespace: what stands above all namespaces may have labels that
        the owner of this one may not see.
        """
        key = _key(reference, namespace)
        while (under_way := self._reading.get(key)) is not None:
            await under_way.wait()
        kept = self._kept.get(key)
        began = anyio.current_time()
        if kept is not None and kept.until > began and kept.read_at >= since:
            return _plain(kept.found)
        self._reading[key] = anyio.Event()
        try:
            found = await self._get(reference, namespace)
        finally:
            self._reading.pop(key).set()
        if found is not Absent.NOT_FOUND:
            encoded = found if isinstance(found, Absent) else msgspec.json.encode(found)
            self._kept.put(key, _Kept(encoded, began, anyio.current_time() + self._keep_s))
        return found

    async def resource(self, api_version: str, kind: str) -> Resource[Object] | None:
        """Return where objects of a kind are, None if they are not served. Raises ApiError."""
        return await self._discovery.resource(api_version, kind)

    def forget(self) -> None:
        """Forget what is too old to be used."""
        self._kept.forget(anyio.current_time())

    @property
    def kept_bytes(self) -> int:
        """Bytes of what is kept."""
        return self._kept.size

    def renew(self, read: Iterable[OwnerReference], namespace: str) -> None:
        """Have these read again when they are asked for next: what they said can't be carried out."""
        for reference in read:
            self._kept.drop(_key(reference, namespace))

    async def _get(self, reference: OwnerReference, namespace: str) -> Json | Absent:
        place = (namespace, reference.api_version, reference.kind)
        if self._forbidden.get(place, 0.0) > anyio.current_time():
            return Absent.FORBIDDEN
        try:
            found = await self._found(reference, namespace)
        except Forbidden as error:
            self._forbidden[place] = anyio.current_time() + _FORBIDDEN_S
            self._forbidden.move_to_end(place)
            if len(self._forbidden) > _MOST_FORBIDDEN:
                self._forbidden.popitem(last=False)
            self._tell(reference, error)
            return Absent.FORBIDDEN
        except (NotFound, BadName):
            return Absent.NOT_FOUND
        if isinstance(found, Absent):
            return found
        plain: dict[str, Any] = msgspec.to_builtins(found)
        return owner_as_read({**plain, "apiVersion": reference.api_version, "kind": reference.kind})

    async def _found(self, reference: OwnerReference, namespace: str) -> Object | Absent:
        resource = await self._discovery.resource(reference.api_version, reference.kind)
        if resource is None:
            return _unserved(reference)
        if not resource.namespaced:
            return Absent.FORBIDDEN
        found = await self._api.get(resource, reference.name, namespace=namespace)
        return found if _is_asked_for(found, reference, namespace) else Absent.NOT_FOUND

    def _tell(self, reference: OwnerReference, error: Forbidden) -> None:
        kind = (reference.api_version, reference.kind)
        if kind not in self._told and len(self._told) < _MOST_FORBIDDEN:
            self._told.add(kind)
            _log.warning(
                "%s of %s can't be read, so their pods are grouped without them: %s; allow the verb get on them in "
                "the ClusterRole of this component",
                reference.kind,
                reference.api_version,
                error,
            )


def _unserved(reference: OwnerReference) -> Absent:
    """What an owner is whose kind the API server does not serve.

    One of the table was there when its pods were made, so it is waited for. Of any other kind nothing is known, and
    what it owns stands for itself.
    """
    key = (reference.api_version, reference.kind)
    is_known = kind_of(*key) != [OTHER] or key in gangs.OBJECTS
    return Absent.NOT_FOUND if is_known else Absent.FORBIDDEN


def _key(reference: OwnerReference, namespace: str) -> Key:
    return namespace, reference.api_version, reference.kind, reference.name, reference.uid


def _plain(found: bytes | Absent) -> Json | Absent:
    if isinstance(found, Absent):
        return found
    plain: Json = msgspec.json.decode(found)
    return plain


def _is_asked_for(found: Object, reference: OwnerReference, namespace: str) -> bool:
    """Whether an answer is the object of a reference, by all that its identity has."""
    meta = found.metadata
    asked_group, _, _ = reference.api_version.rpartition("/")
    group, _, _ = found.api_version.rpartition("/")
    return (
        (group, found.kind) == (asked_group, reference.kind)
        and (meta.get("namespace"), meta.get("name")) == (namespace, reference.name)
        and (not reference.uid or meta.get("uid") == reference.uid)
    )


class _Memo:
    """What was read, the oldest first, within a limit of bytes for all and for each namespace."""

    def __init__(self) -> None:
        self.size = 0
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._of: dict[str, OrderedDict[Key, None]] = {}
        self._sizes: dict[str, int] = {}

    def get(self, key: Key) -> _Kept | None:
        """Return an entry."""
        return self._kept.get(key)

    def put(self, key: Key, kept: _Kept) -> None:
        """Keep an entry in place of older ones: of its namespace beyond its share, of the largest beyond the whole."""
        self.drop(key)
        if kept.size > NAMESPACE_BYTES:
            return
        namespace = key[0]
        self._kept[key] = kept
        self._of.setdefault(namespace, OrderedDict())[key] = None
        self._sizes[namespace] = self._sizes.get(namespace, 0) + kept.size
        self.size += kept.size
        while self._sizes[namespace] > NAMESPACE_BYTES:
            self.drop(next(iter(self._of[namespace])))
        while self.size > KEPT_BYTES:
            self.drop(next(iter(self._of[max(self._sizes, key=self._sizes.__getitem__)])))

    def drop(self, key: Key) -> None:
        """Forget an entry."""
        if (kept := self._kept.pop(key, None)) is None:
            return
        namespace = key[0]
        del self._of[namespace][key]
        self.size -= kept.size
        self._sizes[namespace] -= kept.size
        if not self._of[namespace]:
            del self._of[namespace], self._sizes[namespace]

    def forget(self, now: float) -> None:
        """Forget what is too old to be used."""
        while self._kept and (oldest := next(iter(self._kept.items())))[1].until <= now:
            self.drop(oldest[0])
