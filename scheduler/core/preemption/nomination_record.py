"""Nominations, evictions and failed claims as texts of one ConfigMap; whether a nomination still fits.

Texts are read back strictly: a nomination is read as a whole, or not at all. What can't be read counts for nothing, and
is named for the log. Nobody was evicted for a nomination that was not read back whole here before: the evictor goes by
what is on record. UIDs of pods and owners are 22 characters, and digests stand for long names.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from itertools import islice
from typing import Annotated, Any, Final

import msgspec

from gpu.bind_request import MalformedHandover, PlannedDevice, check_device
from gpu.share import NANO_PER_DEVICE, PERCENT_PER_DEVICE
from scheduler.core.assumed.nominations import Nominations
from scheduler.core.model.pod_class import Demand
from scheduler.core.model.preemption import Action, Evicted, FailedClaim, Moved, Nomination, Place, Victim
from scheduler.core.model.records import NodeRecord
from scheduler.core.model.seen_pods import Pods
from scheduler.core.nodes.ledger import MOST_HAD, Ledger
from scheduler.core.nodes.node_usage import Charge, Occupancy
from scheduler.core.nodes.table import GPUS
from scheduler.core.snapshot.node_count import Supposed

#: The ConfigMap's key that has the text.
KEY: Final = "nominations"
#: How long evictions count.
WINDOW_S: Final = 3600
#: The most evictions of one owner that are kept: the newest. More than may happen within the hour
#: (docs/design/preemption.md).
MOST_TIMES: Final = 16
#: A ConfigMap may have 1 MiB. Counted as it is sent, where the text is a string of JSON, and each quote is two bytes.
MOST_BYTES: Final = 900 * 1024
#: What a text has beside its nominations and owners.
FRAME_BYTES: Final = 64
#: Numbers of JSON are exact below.
_MOST: Final = 1 << 53
_OTHER: Final = "="
_DIGEST: Final = "~"
_UUID_CHARACTERS: Final = 36
_DIGEST_CHARACTERS: Final = 32
_SHORT_CHARACTERS: Final = 22


class Record(msgspec.Struct, frozen=True):
    """``nominations``: those decided first at the front. ``evicted``: owner -> when (wall clock), the oldest first.

    ``waits``: namespaces that take from nobody, and until when (eviction_history.py). Evictions and waits are part of a
    snapshot; the scheduler has evictions in texts of their own (eviction_history.py).
    """

    nominations: tuple[Nomination, ...] = ()
    evicted: Mapping[str, tuple[int, ...]] = {}
    waits: Mapping[str, int] = {}


class Reading(msgspec.Struct, frozen=True):
    """What a text says, and what of it could not be read, in words."""

    record: Record
    unread: tuple[str, ...] = ()


class _Victim(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pod: str
    namespace: str
    name: str
    node: str
    owner: str


class _Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pod: str
    node: str
    devices: tuple[dict[str, Any], ...] = ()
    emptied: tuple[str, ...] = ()


class _Moved(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pod: str
    namespace: str
    owner: str
    node: str
    demand: Demand
    devices: tuple[dict[str, Any], ...] = ()


class _Nomination(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    id: str
    action: Action
    namespace: str
    pod_group: str = ""
    number: int = 0
    places: tuple[_Place, ...]
    victims: tuple[_Victim, ...]
    moved: tuple[_Moved, ...] = ()
    #: Which of the victims go past budgets, by their places.
    past_budgets: tuple[int, ...] = ()


class _Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nominations: list[Any]
    evicted: dict[str, list[Any]]
    waits: dict[str, Annotated[int, msgspec.Meta(ge=0, lt=_MOST)]] = {}


_decoder: Final = msgspec.json.Decoder(_Text)
encode: Final = msgspec.json.Encoder(order="deterministic").encode


class Texts:
    """Nominations and evictions as text. Those of the last record are kept: what stays in it is not encoded again."""

    def __init__(self) -> None:
        self._nominations: dict[str, tuple[Nomination, bytes, int]] = {}
        self._owners: dict[str, tuple[tuple[int, ...], bytes, int]] = {}

    def nomination(self, nomination: Nomination) -> tuple[bytes, int]:
        """A nomination's text, and the bytes that it takes as it is sent."""
        known = self._nominations.get(nomination.id)
        if known is None or known[0] is not nomination:
            text = encode(_written_nomination(nomination))
            known = self._nominations[nomination.id] = nomination, text, sent_bytes(text) + 1
        return known[1:]

    def owner(self, owner: str, times: tuple[int, ...]) -> tuple[bytes, int]:
        """The same of evictions of one owner."""
        known = self._owners.get(owner)
        if known is None or known[0] != times:
            text = encode({short(owner): times})
            known = self._owners[owner] = times, text[1:-1], sent_bytes(text)
        return known[1:]

    def keep(self, nominations: Iterable[Nomination], owners: Set[str]) -> None:
        """Forget all but these nominations, and evictions of these owners."""
        self._nominations = {
            each.id: self._nominations[each.id] for each in nominations if each.id in self._nominations
        }
        self._owners = {owner: known for owner, known in self._owners.items() if owner in owners}


# --- writing ---------------------------------------------------------------------------------------------------------
def written(record: Record, texts: Texts | None = None) -> str:
    """The record as text."""
    texts = texts or Texts()
    nominations = b",".join(texts.nomination(nomination)[0] for nomination in record.nominations)
    evicted = b",".join(sorted(texts.owner(owner, times)[0] for owner, times in record.evicted.items()))
    waits = b',"waits":' + encode(record.waits) if record.waits else b""
    return (b'{"evicted":{' + evicted + b'},"nominations":[' + nominations + b"]" + waits + b"}").decode()


def without(record: Record, ids: Iterable[str]) -> Record:
    """The record without these nominations."""
    over = set(ids)
    return Record(tuple(nomination for nomination in record.nominations if nomination.id not in over), record.evicted)


def owners(nomination: Nomination) -> list[str]:
    """Whose pods go, each once."""
    return list(dict.fromkeys(victim.owner for victim in nomination.victims))


def evictions(record: Record, *, now_s: int) -> dict[str, Evicted]:
    """How often pods of each owner were evicted within the hour."""
    counting = ((owner, _counting(times, now_s)) for owner, times in record.evicted.items())
    return {owner: Evicted(len(times), times[-1]) for owner, times in counting if times}


def _counting(times: Sequence[int], now_s: int) -> tuple[int, ...]:
    """Those of the last hour; one in the future is of a clock that was ahead, and counts."""
    return tuple(at_s for at_s in times if at_s > now_s - WINDOW_S)


def sent_bytes(text: bytes) -> int:
    """How long a text is within a string of JSON; what is JSON itself has nothing else to escape."""
    return len(text) + text.count(b'"') + text.count(b"\\")


def _written_nomination(nomination: Nomination) -> _Nomination:
    return _Nomination(
        id=nomination.id,
        action=nomination.action,
        namespace=nomination.namespace,
        pod_group=nomination.pod_group,
        number=nomination.number,
        places=tuple(
            _Place(short(place.pod_uid), place.node, tuple(map(msgspec.to_builtins, place.devices)), place.emptied)
            for place in nomination.places
        ),
        victims=tuple(
            _Victim(short(victim.pod_uid), victim.namespace, victim.name, victim.node, short(victim.owner))
            for victim in nomination.victims
        ),
        moved=tuple(
            _Moved(
                short(each.pod_uid),
                each.namespace,
                short(each.owner),
                each.node,
                each.demand,
                tuple(map(msgspec.to_builtins, each.devices)),
            )
            for each in nomination.moved
        ),
        past_budgets=tuple(at for at, victim in enumerate(nomination.victims) if victim.past_budgets),
    )


def short(uid: str) -> str:
    """Write a UID, or the identity of an owner."""
    if len(uid) not in {_UUID_CHARACTERS, _DIGEST_CHARACTERS}:
        return _OTHER + uid
    try:
        known = uuid.UUID(uid)
    except ValueError:
        return _OTHER + uid
    said = base64.urlsafe_b64encode(known.bytes)[:_SHORT_CHARACTERS].decode()
    if str(known) == uid:
        return said
    return _DIGEST + said if known.hex == uid else _OTHER + uid


# --- reading ---------------------------------------------------------------------------------------------------------
def read(text: str | bytes) -> Reading:
    """What a text says. Nothing in it raises."""
    try:
        said = _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return Reading(Record(), (f"nothing can be read: {error}",))
    unread: list[str] = []
    nominations = _nominations(said.nominations, unread)
    return Reading(Record(nominations, _evicted(said.evicted, unread), said.waits), tuple(unread))


def _nominations(said: list[Any], unread: list[str]) -> tuple[Nomination, ...]:
    found: dict[str, Nomination] = {}
    pods: set[str] = set()
    for at, one in enumerate(said):
        try:
            nomination = _nomination(msgspec.convert(one, _Nomination))
            _check_alone(nomination, found, pods)
        except (ValueError, msgspec.MsgspecError, RecursionError) as error:
            unread.append(f"nominations[{at}]: {error}")
            continue
        found[nomination.id] = nomination
        pods.update(pods_of(nomination))
    return tuple(found.values())


def _check_alone(nomination: Nomination, found: Mapping[str, Nomination], pods: Set[str]) -> None:
    """Raises ValueError for a nomination that shares something with itself or with one before it."""
    mine = pods_of(nomination)
    if nomination.id in found:
        raise ValueError(f"id: {nomination.id!r} stands twice")
    if len(set(mine)) != len(mine) or not pods.isdisjoint(mine):
        raise ValueError("a pod is in it twice, or in a nomination before it")


def pods_of(nomination: Nomination) -> list[str]:
    """UIDs of its nominated pods and its victims."""
    return [*(place.pod_uid for place in nomination.places), *(victim.pod_uid for victim in nomination.victims)]


def _nomination(said: _Nomination) -> Nomination:
    """Raises ValueError."""
    for field in ("id", "namespace"):
        _require(getattr(said, field), field)
    if not said.places:
        raise ValueError("places: at least one is needed")
    if not 0 <= said.number < _MOST:
        raise ValueError(f"number: {said.number}; allowed: 0 and above, below 2^53")
    past = set(said.past_budgets)
    if not past <= set(range(len(said.victims))):
        raise ValueError(f"past_budgets: {said.past_budgets!r:.80}; allowed: places of victims")
    return Nomination(
        id=said.id,
        action=said.action,
        namespace=said.namespace,
        pod_group=said.pod_group,
        number=said.number,
        places=tuple(map(_place, said.places)),
        victims=tuple(_victim(each, past_budgets=at in past) for at, each in enumerate(said.victims)),
        moved=tuple(map(_moved, said.moved)),
    )


def _place(said: _Place) -> Place:
    _require(said.node, "places: node")
    for group in said.emptied:
        _require(group, "places: emptied")
    return Place(long(said.pod), said.node, tuple(map(_device, said.devices)), said.emptied)


def _device(said: dict[str, Any]) -> PlannedDevice:
    unknown = said.keys() - set(PlannedDevice.__struct_fields__)
    if unknown:
        raise ValueError(f"places: devices: {min(unknown)} is not known here")
    device = msgspec.convert(said, PlannedDevice)
    try:
        check_device(device)
    except MalformedHandover as error:
        raise ValueError(f"places: devices: {error}") from error
    if device.mem_mib >= _MOST:
        raise ValueError(f"places: devices: mem_mib is {device.mem_mib}, below 2^53 is allowed")
    return device


def _victim(said: _Victim, *, past_budgets: bool) -> Victim:
    for field in ("namespace", "name", "node"):
        _require(getattr(said, field), f"victims: {field}")
    return Victim(
        pod_uid=long(said.pod),
        namespace=said.namespace,
        name=said.name,
        node=said.node,
        owner=long(said.owner),
        past_budgets=past_budgets,
    )


def _moved(said: _Moved) -> Moved:
    for field in ("namespace", "node"):
        _require(getattr(said, field), f"moved: {field}")
    demand = said.demand
    amounts = [demand.cpu_milli, demand.mem_mib, demand.ephemeral_mib, demand.gpus, demand.mem_rounding_bytes]
    if not all(0 <= amount < _MOST for amount in (*amounts, *(amount for _, amount in demand.extended))):
        raise ValueError("moved: demand: an amount is out of range; allowed: 0 and above, below 2^53")
    return Moved(
        pod_uid=long(said.pod),
        namespace=said.namespace,
        owner=long(said.owner),
        node=said.node,
        demand=demand,
        devices=tuple(map(_device, said.devices)),
    )


def _require(text: str, field: str) -> None:
    if not text:
        raise ValueError(f"{field}: it must not be empty")


def long(text: str) -> str:
    """Read a UID, or the identity of an owner. Raises ValueError for what nobody writes."""
    if text.startswith(_OTHER):
        uid = text[1:]
    else:
        said = text.removeprefix(_DIGEST).encode()
        try:
            known = uuid.UUID(bytes=base64.b64decode(said + b"==", altchars=b"-_", validate=True))
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"{text!r} is no UID") from error
        uid = known.hex if text.startswith(_DIGEST) else str(known)
    if not uid or short(uid) != text:
        raise ValueError(f"{text!r} is no UID")
    return uid


def _evicted(said: dict[str, list[Any]], unread: list[str]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for owner, times in said.items():
        try:
            found[long(owner)] = times_of(times)
        except ValueError as error:
            unread.append(f"evicted: {owner!r:.80}: {error}")
    return found


def times_of(said: list[Any]) -> tuple[int, ...]:
    """When pods of one owner were evicted. Raises ValueError for what nobody writes."""
    if not 1 <= len(said) <= MOST_TIMES or not all(map(is_count, said)):
        raise ValueError(f"{said!r:.80}; allowed: 1 to {MOST_TIMES} times in seconds")
    return tuple(sorted(said))


def is_count(said: Any) -> bool:
    """Whether this is a whole number from 0 on that JSON has exactly: a time in seconds, or a count."""
    return type(said) is int and 0 <= said < _MOST


#: The ConfigMap's key that has the text.
CLAIMS_KEY: Final = "claims"
#: The most claims that are written, those that failed last. The text takes 45 KiB then.
MOST_CLAIMS: Final = 1_000
_MOST_TIMES: Final = 1 << 31
#: Numbers of JSON are exact below.
_MOST_S: Final = 1 << 53
_claims_decoder: Final = msgspec.json.Decoder(dict[str, Any])


def written_claims(claims: Mapping[str, FailedClaim]) -> str:
    """Claims by UID as text, those that failed last at the end; "" for none.

    They are under a key of their own: a scheduler that does not know it reads the rest as before.
    """
    last = islice(claims.items(), max(0, len(claims) - MOST_CLAIMS), None)
    return msgspec.json.encode({short(uid): tuple(failed) for uid, failed in last}).decode() if claims else ""


def read_claims(text: str) -> tuple[dict[str, FailedClaim], tuple[str, ...]]:
    """What a text says, and what of it could not be read, in words. Nothing in it raises."""
    if not text:
        return {}, ()
    try:
        said = _claims_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return {}, (f"claims: nothing can be read: {error}",)
    found, unread = dict[str, FailedClaim](), list[str]()
    for uid, each in islice(said.items(), MOST_CLAIMS):
        try:
            found[long(uid)] = _failed(each)
        except ValueError as error:
            unread.append(f"claims: {uid!r:.80}: {error}")
    return found, tuple(unread)


def joined_claims(claims: Iterable[Mapping[str, FailedClaim]]) -> dict[str, FailedClaim]:
    """What several know together: of each claim the last failure, those that failed last at the end."""
    found: dict[str, FailedClaim] = {}
    for known in claims:
        for uid, failed in known.items():
            found[uid] = max(failed, found.get(uid, failed), key=lambda each: (each.last_s, each.times))
    return dict(sorted(found.items(), key=lambda item: item[1].last_s))


def _failed(said: Any) -> FailedClaim:
    is_pair = isinstance(said, list) and len(said) == 2 and all(type(each) is int for each in said)
    if not is_pair or not 1 <= said[0] < _MOST_TIMES or not 0 <= said[1] < _MOST_S:
        raise ValueError(f"{said!r:.80}; allowed: a number of times, 1 and above, and a time in seconds")
    return FailedClaim(*said)


Count = Callable[[str, Supposed], Occupancy]
"""Counts a node (by name) as if that had happened."""


def will_fit(nomination: Nomination, *, nominations: Nominations, pods: Pods, ledger: Ledger, count: Count) -> bool:
    """Whether nominated pods that wait fit once all victims are gone, beside the victims' successors.

    Asked right before each eviction, of the nodes of its nomination: a foreign pod may have taken the place beside a
    victim, and then nobody goes for a pod that does not fit. What older nominations keep is theirs; what younger ones
    keep is no obstacle.
    """
    nodes = dict.fromkeys(place.node for place in nomination.places if nominations.waits(place.pod_uid))
    nodes.update(dict.fromkeys(moved.node for moved in nomination.moved))
    return all(
        _fits_on(name, nomination, nominations=nominations, pods=pods, ledger=ledger, count=count) for name in nodes
    )


def _fits_on(
    name: str, nomination: Nomination, *, nominations: Nominations, pods: Pods, ledger: Ledger, count: Count
) -> bool:
    row = ledger.row_of.get(name)
    node = None if row is None else ledger.nodes[row]
    if node is None:
        return False
    rooms = nominations.kept_at(name)
    at = next(at for at, room in enumerate(rooms) if room.of == nomination.id)
    places = [place for place in nomination.places if place.node == name and nominations.waits(place.pod_uid)]
    moved = [each for each in nomination.moved if each.node == name]
    gone = Supposed(
        evicted={
            *(uid for room in rooms[: at + 1] if not nominations.is_ending(room.of) for uid in room.victims),
            *(pod.uid for pod in pods.bound_to(name) if pod.deleting),
        },
        lifted={room.nomination_id for room in rooms[at:]},
    )
    before = count(name, gone)
    after = count(
        name,
        Supposed(placed=_charges(places, moved, pods), evicted=gone.evicted, lifted=gone.lifted),
    )
    return _is_enough((*places, *moved), node, ledger=ledger, before=before, after=after)


def _charges(places: Sequence[Place], moved: Sequence[Moved], pods: Pods) -> tuple[Charge, ...]:
    successors: list[tuple[Place | Moved, Demand]] = [(each, each.demand) for each in moved]
    demands: list[tuple[Place | Moved, Demand]] = [(place, pods.records[place.pod_uid].cls.demand) for place in places]
    return tuple(
        Charge(pod_uid=place.pod_uid, node=place.node, demand=demand, devices=place.devices)
        for place, demand in [*demands, *successors]
    )


def _is_enough(
    places: Sequence[Place | Moved], node: NodeRecord, *, ledger: Ledger, before: Occupancy, after: Occupancy
) -> bool:
    """Whether the node has all that these places take: what they don't take others may have overfilled."""
    total = ledger.amounts(node.capacity, pods=node.pods, most=MOST_HAD)
    used = ledger.used(after)
    takes = used > ledger.used(before)
    emptied = {group for place in places if isinstance(place, Place) for group in place.emptied}
    if any(group in before.groups and before.groups[group].charges for group in emptied):
        return False
    used[GPUS] -= sum(before.groups[group].devices for group in emptied if group in before.groups)
    return not bool((takes & (used > total)).any()) and all(map(_has_room, _devices(places, after)))


def _devices(places: Iterable[Place | Moved], after: Occupancy) -> list[tuple[int, int]]:
    """What is charged on each device that these places have a part of: memory in nano, and compute."""
    groups = {part.group for place in places for part in place.devices}
    of = [after.groups[group] for group in groups]
    return [(sum(group.charges.values()), sum(group.computes.values())) for group in of]


def _has_room(charged: tuple[int, int]) -> bool:
    return charged[0] <= NANO_PER_DEVICE and charged[1] <= PERCENT_PER_DEVICE
