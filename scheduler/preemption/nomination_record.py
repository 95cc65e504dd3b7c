"""The record of nominations and evictions: ConfigMaps that the scheduler alone writes, before anybody is evicted.

One has the nominations, and the claims that failed; evictions of the last hour are in one for each piece of it, so an
eviction rewrites what was evicted in the last minutes. Evictions are written first: a crash between the writes counts
one too many, and never one too few.

Two leaders meet here: each write names the version that was read, so the one that comes second fails, and reads. An
outcome that is not known is settled before anything rests on it: the same write is asked for again until it is
answered. Both can't land, as they name the same version.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Mapping, Set
from typing import Final

import anyio

from kube.client.api import Api
from kube.client.errors import ApiError, Conflict, NotFound, Refused, TooLate
from kube.client.resources import CONFIG_MAPS
from kube.client.retry import until_answered
from scheduler.core.model.preemption import FailedClaim
from scheduler.core.model.settings import NodePool, own_name
from scheduler.core.preemption import eviction_history, nomination_record
from scheduler.core.preemption.eviction_history import PIECES, Hour, Piece, piece_names
from scheduler.core.preemption.nomination_record import CLAIMS_KEY, Record, Texts, read_claims, written_claims
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
    #: The API server does not take it: nothing was written but evictions, perhaps.
    REFUSED = enum.auto()
    #: Whether it was written is not known: the record can't be read.
    UNREAD = enum.auto()


class _Texts:
    """One ConfigMap. ``said``: its texts by key, as they were read or written last."""

    def __init__(self, api: Api, name: str, *keys: str) -> None:
        self._api = api
        self.name = name
        self.said = dict.fromkeys(keys, "")
        #: Its version, "" if it is not there.
        self._version = ""

    async def read(self) -> None:
        """Read it, however long that takes. Raises Forbidden."""
        found = await until_answered(self._found)
        if isinstance(found, Refused):
            raise found
        self._take(found)

    async def _found(self) -> ConfigMap | Refused | None:
        try:
            return await self._api.get(CONFIG_MAPS, self.name, namespace=names.SYSTEM_NAMESPACE)
        except NotFound:
            return None
        except Refused as error:
            if error.code == 403:
                return error
            raise

    def _take(self, found: ConfigMap | None) -> None:
        self._version = "" if found is None else found.metadata.resource_version
        data = {} if found is None else found.data or {}
        self.said = {key: data.get(key, "") for key in self.said}

    async def put(self, said: Mapping[str, str]) -> Wrote:
        """Write texts in place of those that were read or written last; it is read again if that is overtaken."""
        try:
            found = await until_answered(lambda: self._sent(said))
            if isinstance(found, ApiError):
                _log.warning("ConfigMap %s was not written: %s", self.name, found)
                return Wrote.REFUSED
            if found is None:
                await self.read()
                return Wrote.WRITTEN if self._has(said) else Wrote.OVERTAKEN
        except Refused as error:
            _log.error("ConfigMap %s can't be read: %s", self.name, error)
            return Wrote.UNREAD
        self._take(found)
        return Wrote.WRITTEN if self._has(said) else Wrote.OVERTAKEN

    def _has(self, said: Mapping[str, str]) -> bool:
        return all(self.said[key] == text for key, text in said.items())

    async def _sent(self, said: Mapping[str, str]) -> ConfigMap | ApiError | None:
        """The ConfigMap as written; None: another version is there; an error: it was not written. Raises ApiError."""
        data = {"data": dict(said)}
        try:
            if not self._version:
                new = {"metadata": {"name": self.name}, **data}
                return await self._api.create(CONFIG_MAPS, new, namespace=names.SYSTEM_NAMESPACE)
            return await self._api.patch(
                CONFIG_MAPS, self.name, data, namespace=names.SYSTEM_NAMESPACE, resource_version=self._version
            )
        except (Conflict, NotFound) as error:
            if isinstance(error, NotFound) and not self._version:
                return error  # it is the namespace that is not there
            return None
        except (Refused, TooLate) as error:
            if error.outcome_unknown:
                raise
            return error


async def _read(*texts: _Texts) -> None:
    """Read ConfigMaps at one time. Raises Forbidden."""
    refused: list[Refused] = []

    async def read(one: _Texts) -> None:
        try:
            await one.read()
        except Refused as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for each in texts:
            tasks.start_soon(read, each)
    if refused:
        raise refused[0]


class NominationRecord:
    """``record``, ``hour`` and ``claims`` (those that failed): as they were read or written last.

    ``texts``: of what is in it.
    """

    record: Record
    claims: Mapping[str, FailedClaim]
    _ids: Set[str]

    def __init__(self, api: Api, pool: NodePool | None = None) -> None:
        self._main = _Texts(api, own_name(names.NOMINATIONS, pool), nomination_record.KEY, CLAIMS_KEY, _TERM)
        self._pieces = [_Texts(api, name, eviction_history.KEY) for name in piece_names(pool)]
        self.hour = Hour()
        self.texts = Texts()
        self._have(Record(), {})

    @property
    def ids(self) -> Set[str]:
        """Ids of the nominations in it."""
        return self._ids

    async def read(self) -> None:
        """Read it, however long that takes. Raises Forbidden.

        Evictions are on record before their nomination: with nominations there, they are read again after these.
        """
        await _read(self._main, *self._pieces)
        if nomination_record.read(self._main.said[nomination_record.KEY] or "{}").record.nominations:
            await _read(*self._pieces)
        self._take_main()
        for at in range(PIECES):
            self._take_piece(at)

    def _have(self, record: Record, claims: Mapping[str, FailedClaim]) -> None:
        self.record, self._ids = record, {nomination.id for nomination in record.nominations}
        self.claims = claims

    def _take_main(self) -> None:
        said = self._main.said
        reading = (
            nomination_record.read(said[nomination_record.KEY])
            if said[nomination_record.KEY]
            else nomination_record.Reading(Record())
        )
        claims, unread = read_claims(said[CLAIMS_KEY])
        for problem in (*reading.unread, *unread):
            _log.warning("ConfigMap %s: %s; what it kept is free", self._main.name, problem)
        self._have(Record(reading.record.nominations), claims)

    def _take_piece(self, at: int) -> None:
        texts = self._pieces[at]
        piece, unread = eviction_history.read(texts.said[eviction_history.KEY])
        for problem in unread:
            _log.warning("ConfigMap %s: %s; what it counted is forgotten", texts.name, problem)
        self.hour = self.hour.put(piece if piece.number % PIECES == at else Piece(at))

    async def take_over(self) -> Wrote:
        """Write what was read as a version of one's own: no write lands any more that names an older one.

        Evictions need none: an earlier leader's write that lands late counts one too many.
        """
        term = str(_term(self._main.said[_TERM]) + 1)
        return await self._put_main(self.record, self.claims, {_TERM: term})

    async def write(self, record: Record, hour: Hour, claims: Mapping[str, FailedClaim]) -> Wrote:
        """Write it in place of the version that was read or written last: evictions first, what changed alone."""
        for at, (piece, known) in enumerate(zip(hour.pieces, self.hour.pieces, strict=True)):
            if piece is known or piece == known:
                continue
            wrote = await self._pieces[at].put({eviction_history.KEY: eviction_history.written(piece, self.texts)})
            if wrote is Wrote.OVERTAKEN:
                self._take_piece(at)
                return await self._overtaken()
            if wrote is not Wrote.WRITTEN:
                return wrote
            self.hour = self.hour.put(piece)
        return await self._put_main(record, claims, {})

    async def _overtaken(self) -> Wrote:
        """Somebody else writes evictions: read for which nominations."""
        try:
            await self._main.read()
        except Refused as error:
            _log.error("ConfigMap %s can't be read: %s", self._main.name, error)
            return Wrote.UNREAD
        self._take_main()
        return Wrote.OVERTAKEN

    async def _put_main(self, record: Record, claims: Mapping[str, FailedClaim], more: Mapping[str, str]) -> Wrote:
        said = {
            nomination_record.KEY: nomination_record.written(record, self.texts),
            CLAIMS_KEY: written_claims(claims),
            **more,
        }
        before = self._main.said
        if all(before[key] == text for key, text in said.items()):
            return Wrote.WRITTEN
        wrote = await self._main.put(said)
        if wrote is not Wrote.WRITTEN:
            if wrote is Wrote.OVERTAKEN:
                self._take_main()
            return wrote
        self._have(record, claims)
        owners = {owner for piece in self.hour.pieces for taken in piece.of.values() for owner in taken.evicted}
        self.texts.keep(record.nominations, owners)
        return Wrote.WRITTEN


def _term(said: str) -> int:
    """A term as it was written; what people wrote there counts for nothing."""
    return int(said) if said.isascii() and said.isdecimal() and len(said) < _MOST_DIGITS else 0
