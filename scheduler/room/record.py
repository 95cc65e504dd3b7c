"""The record of intents: one ConfigMap, written by the scheduler alone, before anybody is evicted.

Two leaders meet here: each write names the version that was read, so the one that comes second fails, and reads. An
outcome that is not known is settled before anything rests on it: the same write is asked for again until it is
answered. Both can't land, as they name the same version.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping, Set
from typing import Final, NamedTuple

from kube.client.api import Api
from kube.client.errors import ApiError, Conflict, NotFound, Refused, TooLate
from kube.client.patience import until_answered
from kube.client.resources import CONFIG_MAPS
from scheduler.core.model.node_pool import NodePool, own_name
from scheduler.core.model.room import FailedClaim
from scheduler.core.room import written_claims
from scheduler.core.room.written import KEY, Record, Texts, read, written
from wire import names
from wire.core import ConfigMap

_log: Final = logging.getLogger(__name__)
#: How often the record was taken over: a write that changes nothing is no new version.
_TERM: Final = "term"
_MOST_DIGITS: Final = 16


class Wrote(enum.Enum):
    """What became of a write."""

    WRITTEN = enum.auto()
    #: Somebody else has written: their record was read.
    OVERTAKEN = enum.auto()
    #: The API server does not take it: nothing was written.
    REFUSED = enum.auto()


class _Wanted(NamedTuple):
    """What is to be written, and as which texts, by key."""

    record: Record
    claims: Mapping[str, FailedClaim]
    said: dict[str, str]


class RoomRecord:
    """``record`` and ``claims`` (those that failed): as they were read or written last. ``texts``: of what is in it."""

    record: Record
    claims: Mapping[str, FailedClaim]
    _ids: Set[str]

    def __init__(self, api: Api, pool: NodePool | None = None) -> None:
        self._api = api
        self._name = own_name(names.ROOM, pool)
        self._have(Record(), {})
        self.texts = Texts()
        #: Its version, "" if it is not there.
        self._version = ""
        self._said = {KEY: "", written_claims.KEY: ""}
        self._term = 0

    @property
    def ids(self) -> Set[str]:
        """Ids of the intents in it."""
        return self._ids

    async def read(self) -> None:
        """Read it, however long that takes. Raises Forbidden."""
        found = await until_answered(self._found)
        if isinstance(found, Refused):
            raise found
        self._take(found)

    async def _found(self) -> ConfigMap | Refused | None:
        try:
            return await self._api.get(CONFIG_MAPS, self._name, namespace=names.SYSTEM_NAMESPACE)
        except NotFound:
            return None
        except Refused as error:
            if error.code == 403:
                return error
            raise

    def _have(self, record: Record, claims: Mapping[str, FailedClaim]) -> None:
        self.record, self._ids = record, {intent.id for intent in record.intents}
        self.claims = claims

    def _take(self, found: ConfigMap | None, wrote: _Wanted | None = None) -> None:
        """Take what was found; ``wrote``: what it is if it has these texts, which then need not be read."""
        self._version = "" if found is None else found.metadata.resource_version
        data = {} if found is None else found.data or {}
        self._said, self._term = {key: data.get(key, "") for key in self._said}, _term(data.get(_TERM, ""))
        if found is None:
            self._have(Record(), {})
            return
        if wrote is not None and wrote.said == self._said:
            self._have(wrote.record, wrote.claims)
            self.texts.keep(self.record)
            return
        reading, (claims, unread) = read(self._said[KEY]), written_claims.read(self._said[written_claims.KEY])
        for problem in (*reading.unread, *unread):
            _log.warning("ConfigMap %s: %s; what it kept is free", self._name, problem)
        self._have(reading.record, claims)

    async def take_over(self) -> Wrote:
        """Write what was read as a version of one's own: no write lands any more that names an older one."""
        return await self._put(self._wanted(self.record, self.claims), {_TERM: str(self._term + 1)})

    async def write(self, record: Record, claims: Mapping[str, FailedClaim]) -> Wrote:
        """Write it in place of the version that was read or written last."""
        wanted = self._wanted(record, claims)
        return Wrote.WRITTEN if wanted.said == self._said else await self._put(wanted, {})

    def _wanted(self, record: Record, claims: Mapping[str, FailedClaim]) -> _Wanted:
        said = {KEY: written(record, self.texts), written_claims.KEY: written_claims.written(claims)}
        return _Wanted(record, claims, said)

    async def _put(self, wanted: _Wanted, more: dict[str, str]) -> Wrote:
        try:
            found = await until_answered(lambda: self._sent({**wanted.said, **more}))
            if isinstance(found, ApiError):
                _log.warning("ConfigMap %s was not written: %s", self._name, found)
                return Wrote.REFUSED
            if found is None:
                term = more.get(_TERM, str(self._term))
                await self.read()
                if (self._said, str(self._term)) != (wanted.said, term):
                    return Wrote.OVERTAKEN
                return Wrote.WRITTEN
        except Refused as error:
            _log.error("ConfigMap %s can't be read: %s", self._name, error)
            return Wrote.REFUSED
        self._take(found, wanted)
        return Wrote.WRITTEN

    async def _sent(self, said: dict[str, str]) -> ConfigMap | ApiError | None:
        """The ConfigMap as written; None: another version is there; an error: it was not written. Raises ApiError."""
        data = {"data": said}
        try:
            if not self._version:
                new = {"metadata": {"name": self._name}, **data}
                return await self._api.create(CONFIG_MAPS, new, namespace=names.SYSTEM_NAMESPACE)
            return await self._api.patch(
                CONFIG_MAPS, self._name, data, namespace=names.SYSTEM_NAMESPACE, resource_version=self._version
            )
        except (Conflict, NotFound) as error:
            if isinstance(error, NotFound) and not self._version:
                return error  # it is the namespace that is not there
            return None
        except (Refused, TooLate) as error:
            if error.outcome_unknown:
                raise
            return error


def _term(said: str) -> int:
    """A term as it was written; what people wrote there counts for nothing."""
    return int(said) if said.isascii() and said.isdecimal() and len(said) < _MOST_DIGITS else 0
