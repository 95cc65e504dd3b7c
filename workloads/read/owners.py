"""Reads owners, each once for a while, for all callers. Only what rules read of them is kept."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any, Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.errors import Forbidden, NotFound
from wire.core import OwnerReference
from workloads.core.foreign import words
from workloads.core.kinds import OTHER, kind_of
from workloads.core.reading import owner_as_read
from workloads.core.values import Json
from workloads.core.walk import Absent
from workloads.read.discovery import Discovery

_log: Final = logging.getLogger(__name__)

#: A kind that may not be read in a namespace is not asked for again there sooner: rights change rarely.
_FORBIDDEN_S: Final = 600.0
#: Most owners that are kept.
_MOST: Final = 10_000


class _Kept(msgspec.Struct, frozen=True):
    found: Json | Absent
    until: float


class Owners:
    """Owners by UID, and objects that rules ask for by name. ``keep_s``: what was read is used for so long.

    That an object does not exist is never kept: it may be there in the next moment.
    """

    def __init__(self, api: Api, *, keep_s: float) -> None:
        self._api = api
        self._keep_s = keep_s
        self._discovery = Discovery(api)
        self._kept: OrderedDict[tuple[str, ...], _Kept] = OrderedDict()
        #: What is being read right now, so that it is read once.
        self._reading: dict[tuple[str, ...], anyio.Event] = {}
        #: (namespace, apiVersion, kind) that may not be read, until when that is taken for granted.
        self._forbidden: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        #: Kinds of which that was said.
        self._told: set[tuple[str, str]] = set()

    async def read(self, reference: OwnerReference, namespace: str) -> Json | Absent:
        """Return an object. A reference without a UID asks for whichever has its name. Raises ApiError."""
        key = (reference.uid,) if reference.uid else (namespace, reference.api_version, reference.kind, reference.name)
        while (under_way := self._reading.get(key)) is not None:
            await under_way.wait()
        kept = self._kept.get(key)
        if kept is not None and kept.until > anyio.current_time():
            return kept.found
        self._reading[key] = anyio.Event()
        try:
            found = await self._get(reference, namespace)
        finally:
            self._reading.pop(key).set()
        if found is not Absent.NOT_FOUND:
            self._kept[key] = _Kept(found, anyio.current_time() + self._keep_s)
            self._kept.move_to_end(key)
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return found

    def forget(self) -> None:
        """Forget what is too old to be used."""
        now = anyio.current_time()
        while self._kept and next(iter(self._kept.values())).until <= now:
            self._kept.popitem(last=False)

    def renew(self, uids: set[str]) -> None:
        """Have these read again when they are asked for next: what they said can't be carried out."""
        for uid in uids:
            self._kept.pop((uid,), None)

    async def _get(self, reference: OwnerReference, namespace: str) -> Json | Absent:
        place = (namespace, reference.api_version, reference.kind)
        if self._forbidden.get(place, 0.0) > anyio.current_time():
            return Absent.FORBIDDEN
        try:
            resource = await self._discovery.resource(reference.api_version, reference.kind)
            if resource is None:
                return _unserved(reference)
            found = await self._api.get(resource, reference.name, namespace=namespace if resource.namespaced else "")
        except Forbidden as error:
            self._forbidden[place] = anyio.current_time() + _FORBIDDEN_S
            self._forbidden.move_to_end(place)
            if len(self._forbidden) > _MOST:
                self._forbidden.popitem(last=False)
            self._tell(reference, error)
            return Absent.FORBIDDEN
        except NotFound:
            return Absent.NOT_FOUND
        if reference.uid and found.metadata.get("uid") != reference.uid:
            return Absent.NOT_FOUND
        plain: dict[str, Any] = msgspec.to_builtins(found)
        return owner_as_read({**plain, "apiVersion": reference.api_version, "kind": reference.kind})

    def _tell(self, reference: OwnerReference, error: Forbidden) -> None:
        kind = (reference.api_version, reference.kind)
        if kind not in self._told and len(self._told) < _MOST:
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
    is_known = kind_of(*key) != [OTHER] or key in words.OBJECTS
    return Absent.NOT_FOUND if is_known else Absent.FORBIDDEN
