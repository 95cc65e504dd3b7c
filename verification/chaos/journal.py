"""What was seen of a run while it went on, in files, and the whole of it shown to the checker of the simulations.

Three sources: versions of API objects as a watch of our own shows them, records of the simulated machines
(simulator/nodes/ground_truth.py), and the API server's audit log. The first two carry the machine's monotonic clock,
the last one the wall clock. A watch that was lost while the API server was away shows what exists when it is back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import anyio
import msgspec

from simulator.checks.checker import PODS, Checker
from simulator.checks.evictions import Write
from simulator.nodes import ground_truth
from simulator.nodes.device_manager import Device
from simulator.nodes.ground_truth import Freed, Held, Record, Refused, Started, Stopped
from verification.chaos.users import NAMESPACE
from wire import names

#: Writes of everybody, when they are answered.
AUDIT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
"""
_ACCOUNTS: Final = tuple(
    f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:moorage-{role}" for role in ("scheduler", "binder")
)


class Seen(msgspec.Struct, frozen=True, tag=True):
    """One version of an API object; ``event`` is ADDED, MODIFIED or DELETED."""

    at_s: float
    plural: str
    event: str
    raw: dict[str, Any]


Moment = Seen | Write | Record
_decode_seen: Final = msgspec.json.Decoder(Seen).decode


class Journal:
    """Takes what observers (simulator/checks/observer.py) see and writes it down; a context manager."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes]
        self.versions = 0
        #: The newest resourceVersion that was seen: what the API server must never go back behind.
        self.newest = 0

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def take(self, plural: str, event: str, raw: dict[str, Any]) -> None:
        """Write a version down."""
        raw["metadata"].pop("managedFields", None)
        self.versions += 1
        self.newest = max(self.newest, int(raw["metadata"]["resourceVersion"]))
        self._file.write(msgspec.json.encode(Seen(anyio.current_time(), plural, event, raw)) + b"\n")

    def read(self) -> Iterator[Seen]:
        """Yield what was written, in order."""
        self._file.flush()
        with self._path.open("rb") as lines:
            yield from map(_decode_seen, lines)


def in_order(
    journal: Journal, records: Iterable[Path], audit_log: Path, *, monotonic_minus_wall_s: float
) -> Iterator[Moment]:
    """Yield everything that is known of a run by its time. What the audit log lost with a killed server is missing."""
    streams: list[Iterator[Moment]] = [journal.read(), *map(ground_truth.read, records)]
    return heapq.merge(*streams, _writes(audit_log, monotonic_minus_wall_s), key=lambda moment: moment.at_s)


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Object(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    """One request of the audit log."""

    verb: str
    request_received_timestamp: datetime
    user: _User = _User()
    object_ref: _Object = _Object()
    response_status: _Answer = _Answer()


_decode_entry: Final = msgspec.json.Decoder(_Entry).decode


def _writes(audit_log: Path, monotonic_minus_wall_s: float) -> Iterator[Write]:
    with audit_log.open("rb") as lines:
        for line in lines:
            # A killed server leaves half a line, and its successor goes on behind it.
            try:
                entry = _decode_entry(line)
            except msgspec.DecodeError:
                continue
            target = entry.object_ref
            yield Write(
                at_s=entry.request_received_timestamp.timestamp() + monotonic_minus_wall_s,
                user=entry.user.username,
                is_ours=entry.user.username.startswith(_ACCOUNTS),
                verb=entry.verb,
                plural=target.resource,
                subresource=target.subresource,
                namespace=target.namespace,
                name=target.name,
                code=entry.response_status.code,
            )


def close(records: Path, checkpoints: Path, *, at_s: float) -> None:
    """Write down what the death of a process of simulated machines ended: its containers, and what it released last.

    ``checkpoints`` is the folder of its device managers: what is not in there any more is free, told or not.
    """
    running: dict[tuple[str, str], Started] = {}
    holding: dict[str, Held] = {}
    for record in ground_truth.read(records):
        match record:
            case Started():
                running[record.pod_uid, record.container] = record
            case Stopped():
                running.pop((record.pod_uid, record.container), None)
            case Held():
                holding[record.pod_uid] = record
            case Freed():
                holding.pop(record.pod_uid, None)
            case _:
                pass
    kept = {key.partition("/")[0] for path in checkpoints.glob("*.json") for key in _checkpoint(path.read_bytes())}
    with ground_truth.Recording(records) as file:
        for (uid, container), begun in running.items():
            file(Stopped(at_s=at_s, node=begun.node, pod_uid=uid, container=container))
        for uid, held in holding.items():
            if uid not in kept:
                file(Freed(at_s=at_s, node=held.node, pod_uid=uid))


_checkpoint: Final = msgspec.json.Decoder(dict[str, list[int]]).decode


_USERS: Final = f"{NAMESPACE}/"
#: While everything is restarted again and again: a new scheduler counts the grace time of a broken gang from zero.
_GANG_GRACE_S: Final = 300.0
#: A gang that is seen broken late, after an outage, may be released a little before its time by our clock.
_RELEASE_S: Final = 40.0


@dataclass(frozen=True, slots=True)
class Machines:
    """What simulated machines wrote down, as UIDs of pods. ``ran``: users' pods.

    ``unseen``: pods that were never seen bound, as the observer had no API server meanwhile: nobody judges them.
    """

    ran: frozenset[str]
    refused: frozenset[str]
    unseen: frozenset[str]


def machines(records: Iterable[Path], journal: Journal) -> Machines:
    """Read what happened on the machines."""
    every = [record for path in records for record in ground_truth.read(path)]
    versions = (seen.raw for seen in journal.read() if seen.plural == PODS)
    bound = {raw["metadata"]["uid"] for raw in versions if raw["spec"].get("nodeName")}
    return Machines(
        ran=frozenset(each.pod_uid for each in every if isinstance(each, Started) and each.pod.startswith(_USERS)),
        refused=frozenset(record.pod_uid for record in every if isinstance(record, Refused)),
        unseen=frozenset(record.pod_uid for record in every) - bound,
    )


def judge(
    story: Iterable[Moment],
    devices: Mapping[str, tuple[Device, ...]],
    *,
    unseen: frozenset[str],
    rested_s: float,
    leftovers: Mapping[str, list[dict[str, Any]]],
) -> Checker:
    """Have the checker look at a run that was at rest at ``rested_s`` and at its end left ``leftovers``."""
    checker = Checker(devices, gang_grace_s=_GANG_GRACE_S, release_s=_RELEASE_S)
    checker.disturbed("everything was killed and restarted")
    is_rest_judged = False
    for moment in story:
        checker.findings.start_s = checker.findings.start_s or moment.at_s
        if moment.at_s > rested_s and not is_rest_judged:
            _judge_rest(checker, rested_s)
            is_rest_judged = True
        _show(checker, moment, unseen)
    checker.leftovers(leftovers, anyio.current_time())
    checker.finish(anyio.current_time())
    return checker


def _judge_rest(checker: Checker, at_s: float) -> None:
    checker.judge_waiting(at_s)
    checker.judge_forgotten((), at_s)
    checker.nominations.judge_rest(at_s)
    checker.findings.judged.add("L2")


def _show(checker: Checker, moment: Moment, unseen: frozenset[str]) -> None:
    if isinstance(moment, Seen):
        checker.observed(moment.plural, moment.event, moment.raw, moment.at_s)
    elif isinstance(moment, Write):
        checker.wrote(moment)
    elif moment.pod_uid not in unseen:
        checker.recorded(moment)
