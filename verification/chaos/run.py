"""One run of chaos on a real control plane: pods come and go while everything is killed, stopped, cut and delayed.

Programs are killed, stopped and restarted at random; one that ends on its own is started again, as kubelet would do it,
and how often that happened is reported. Afterwards, faults off, everything that fits has to run within bounded time;
then all pods are deleted, and nothing of ours may be left; and the whole run is shown to the checker of the
simulations. It can't judge S12: a scheduler's ledger can't be seen from outside its process. A ledger that has drifted
shows in pods that wait though they fit, or that a kubelet refuses; the simulation compares ledgers after every event.
"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from kube.client import config, errors
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.config import Credentials
from kube.client.http import HttpTransport
from kube.client.resources import NAMESPACES
from kube.client.retry import Retry
from kube.client.transport import Transport
from simulator.apiserver.faults import NOTHING, End, Fault
from simulator.checks import messages, observer
from simulator.checks.checker import BIND_REQUESTS, CONFIG_MAPS, PODS, SHOWN, WATCHED, Checker
from simulator.checks.checker import NODES as SHOWN_NODES
from simulator.checks.ledgers import node as _node
from simulator.checks.observer import Observer
from simulator.checks.violations import LIVENESS, SOUND
from simulator.nodes import shape
from simulator.nodes.device_manager import Device, make_devices
from simulator.nodes.shape import NodeShape
from tools.cluster.deployment import ADMISSION, BINDER, NODES, SCHEDULER, Deployment, Options
from tools.cluster.plane import ControlPlane
from tools.faultyproxy import FaultyProxy, Kind, catalogue
from verification.chaos import journal
from verification.chaos import journal as judging
from verification.chaos.journal import AUDIT_POLICY, Journal, in_order
from verification.chaos.users import NAMESPACE, Users
from wire import names

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
#: Between two blows, in seconds.
_PAUSES_S: Final = (1.5, 5.0)
#: How long a program is away.
_AWAY_S: Final = (0.2, 4.0)
_STOPPED_S: Final = (0.5, 10.0)
_KILLER_LOOK_S: Final = 0.5
_TRACE: Final = "Traceback (most recent call last)"


@dataclass(frozen=True, slots=True)
class Target:
    """One program and what can be done to it."""

    name: str
    kill: Callable[[], None]
    start: Callable[[], None]
    pause: Callable[[], None]
    go_on: Callable[[], None]


class Mischief:
    """Plays with the programs of a control plane and the components on it."""

    def __init__(self, plane: ControlPlane, moorage: Deployment, components: Sequence[str], rng: random.Random) -> None:
        self.kills: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        #: Programs that ended by themselves: a leader that lost its lease does, with 0.
        self.ended: Counter[str] = Counter()
        #: The ends of the logs of programs that ended any other way.
        self.last_words: list[str] = []
        #: Logs of components with an exception that nobody caught.
        self.traces: list[str] = []
        self._plane = plane
        self._moorage = moorage
        self._rng = rng
        self._busy: set[str] = set()
        self._targets = [self._program(name) for name in (ETCD, API_SERVER)]
        self._targets += [self._component(name) for name in components]

    async def run(self) -> None:
        """Strike at random until cancelled; each program that was struck works again before this returns."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(self._rng.uniform(*_PAUSES_S))
                free = [target for target in self._targets if target.name not in self._busy]
                if free:
                    tasks.start_soon(self._strike, self._rng.choice(free), self._rng.random() < 0.7)

    async def look_after(self) -> None:
        """Start again what ended on its own, until cancelled."""
        while True:
            await anyio.sleep(_KILLER_LOOK_S)
            for target in self._targets:
                if target.name not in self._busy:
                    self._revive(target)

    def collect_traces(self) -> None:
        """Look through the logs of all components that run."""
        for name in self._moorage.running:
            self._trace(name)

    async def _strike(self, target: Target, is_kill: bool) -> None:
        self._busy.add(target.name)
        away_s = self._rng.uniform(*(_AWAY_S if is_kill else _STOPPED_S))
        (self.kills if is_kill else self.stops)[target.name] += 1
        (target.kill if is_kill else target.pause)()
        try:
            await anyio.sleep(away_s)
        finally:
            (target.start if is_kill else target.go_on)()
            self._busy.discard(target.name)

    def _revive(self, target: Target) -> None:
        children = [*self._plane.programs, *self._moorage.running.values()]
        child = next((child for child in children if child.name == target.name), None)
        if child is not None and child.process.poll() is not None:
            self.ended[child.name] += 1
            if child.process.returncode:
                self.last_words.append(f"{child.name} ended with {child.process.returncode}:\n{child.tail()}")
            target.kill()
            target.start()

    def _program(self, name: str) -> Target:
        plane = self._plane
        return Target(
            name,
            kill=lambda: plane.kill(name),
            start=lambda: plane.start_again(name),
            pause=lambda: plane.pause(name),
            go_on=lambda: plane.go_on(name),
        )

    def _component(self, name: str) -> Target:
        moorage = self._moorage
        return Target(
            name,
            kill=lambda: self._end(name),
            start=lambda: moorage.start(name),
            pause=lambda: moorage.pause(name),
            go_on=lambda: moorage.go_on(name),
        )

    def _end(self, name: str) -> None:
        self._moorage.kill(name)
        self._trace(name)
        if name.startswith(NODES):
            # The machines' own clock: it is the same in all processes.
            journal.close(self._moorage.records(name), self._checkpoints(name), at_s=time.monotonic())

    def _checkpoints(self, name: str) -> Path:
        return self._moorage.folder / name

    def _trace(self, name: str) -> None:
        before, found, after = self._moorage.log(name).partition(_TRACE)
        if found:
            self.traces.append(f"{name}: {before[-500:]}{found}{after[:3000]}")


_log: Final = logging.getLogger(__name__)

_LOOK_S: Final = 1.0
#: Numbers of nodes in conditions are at least 10 s old at times (docs/pending.md, How old a reason can be).
_COUNTS_S: Final = 30.0
#: So often in a row nothing may be missing.
_LOOKS: Final = 3


class NotYet(Exception):
    """Raised when a cluster does not come to what it should within its time; says what is missing."""


async def settled(transport: Transport, devices: Mapping[str, tuple[Device, ...]], *, within_s: float) -> float:
    """Wait until all that fits runs and everybody else says why not; return how long it took. Raises NotYet.

    What conditions tell is then given time to become true, and judged as L3 if it does not.
    """

    async def unsettled() -> str:
        there = {plural: await _listed(transport, plural) for plural in WATCHED}
        checker = _checker(devices, there)
        fitting = list(checker.fitting(checker.scene).values())
        away = [node.name for node in map(_node, there[SHOWN_NODES]) if not node.is_ready]
        going = [pod.key for pod in checker.live.values() if not is_settled(pod.raw)]
        requests = [raw["metadata"]["name"] for raw in there[BIND_REQUESTS]]
        return _first_of({
            "nodes are not ready": away,
            "pods wait though they fit": fitting,
            "pods are on their way": going,
            "BindRequests are there": requests,
        })  # fmt: skip

    took_s = await _nothing_missing(unsettled, within_s=within_s)
    with anyio.move_on_after(_COUNTS_S):
        while await _untrue(transport, devices):  # noqa: ASYNC110 - asks the API server
            await anyio.sleep(_LOOK_S)
    return took_s


def _checker(devices: Mapping[str, tuple[Device, ...]], there: Mapping[str, list[dict[str, Any]]]) -> Checker:
    """Return a checker that was shown all of these objects, by plural."""
    checker = Checker(devices)
    for plural, listed in there.items():
        for raw in listed:
            checker.observed(plural, "ADDED", raw, 0.0)
    return checker


async def _untrue(transport: Transport, devices: Mapping[str, tuple[Device, ...]]) -> bool:
    """Whether a pod says of itself what is not so."""
    checker = _checker(devices, {plural: await _listed(transport, plural) for plural in WATCHED})
    checker.judge_waiting(0.0)
    return any(invariant == "L3" for invariant, _ in checker.findings.found)


async def cleared(transport: Transport, users: Users, *, within_s: float) -> float:
    """Delete all pods and wait until nothing of ours is left; return how long it took. Raises NotYet."""

    async def left() -> str:
        await users.leave()
        pods = [_key(raw) for raw in await _listed(transport, PODS)]
        requests = [_key(raw) for raw in await _listed(transport, BIND_REQUESTS)]
        spaces = (f"{NAMESPACE}/", f"{names.RESERVATION_NAMESPACE}/")
        return _first_of({
            "pods are left": [key for key in pods if key.startswith(spaces)],
            "BindRequests are left": requests,
        })  # fmt: skip

    return await _nothing_missing(left, within_s=within_s)


async def listed_leftovers(transport: Transport) -> Mapping[str, list[dict[str, Any]]]:
    """Everything in which something of ours may be left, by plural."""
    return {plural: await _listed(transport, plural) for plural in (*WATCHED, CONFIG_MAPS)}


async def newest(transport: Transport) -> int:
    """The API server's own resourceVersion."""
    return int((await observer.objects(transport, PODS))["metadata"]["resourceVersion"])


async def _nothing_missing(look: Callable[[], Awaitable[str]], *, within_s: float) -> float:
    """Look until nothing is missing several times in a row; return when that was first so."""
    began, looks, missing = anyio.current_time(), 0, ""
    while looks < _LOOKS:
        if anyio.current_time() > began + within_s:
            raise NotYet(f"after {within_s:.0f} s without faults {missing}")
        try:
            missing = await look()
        except errors.ApiError as error:
            missing = str(error)
        looks = 0 if missing else looks + 1
        _log.info("%s", missing or "nothing is missing")
        await anyio.sleep(_LOOK_S)
    return anyio.current_time() - began - _LOOKS * _LOOK_S


def _first_of(missing: Mapping[str, list[str]]) -> str:
    return next((f"{len(found)} {what}: {found[0]}" for what, found in missing.items() if found), "")


async def _listed(transport: Transport, plural: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (await observer.objects(transport, plural))["items"]
    return listed


def _key(raw: Mapping[str, Any]) -> str:
    return f"{raw['metadata'].get('namespace', '')}/{raw['metadata']['name']}"


def is_settled(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs, has ended, or says why it waits; none is on its way out, or between two attempts."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return False
    if status.get("phase") in {names.RUNNING, names.SUCCEEDED, names.FAILED}:
        return True
    return any(
        each["type"] == names.CONDITION_POD_SCHEDULED
        and each["status"] == "False"
        and not messages.is_passing(each.get("message") or "")
        for each in status.get("conditions") or ()
    )


#: How many in a thousand requests go wrong. A watch is one request, and its end the usual thing.
_PERMILLE: Final = {Kind.READ: 30, Kind.WRITE: 30, Kind.WATCH: 700}
#: How many in a thousand of the others are late.
_LATE_PERMILLE: Final = 300
_LATEST_S: Final = 0.15
_LATEST_LINE_S: Final = 0.02
_MOST_LINES: Final = 200


class Luck:
    """A Fate (tools/faultyproxy.py) without plan or end. ``counts``: what has happened, by name."""

    def __init__(self, rng: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = rng
        self._is_calm = True

    def turn_bad(self) -> None:
        """Let things go wrong from now on."""
        self._is_calm = False

    def turn_good(self) -> None:
        """Let nothing go wrong with requests that come from now on."""
        self._is_calm = True

    def deal(self, kind: Kind) -> Fault:
        """What is to happen to a request that has just come."""
        if self._is_calm:
            return NOTHING
        if self._rng.randrange(1000) < _PERMILLE[kind]:
            return self._fault(kind)
        if self._rng.randrange(1000) < _LATE_PERMILLE:
            return Fault(name="late", delay_s=self._rng.uniform(0.0, _LATEST_S))
        return NOTHING

    def struck(self, fault: Fault) -> None:
        """It has happened."""
        self.counts[fault.name] += 1

    def _fault(self, kind: Kind) -> Fault:
        # A watch that falls silent is found out after 90 s: stopped servers play that here, for a shorter time.
        choices = [fault for fault in catalogue(self._rng)[kind] if fault.end is not End.FALLS_SILENT]
        fault = self._rng.choice(choices)
        if fault.line_delay_s:
            return msgspec.structs.replace(fault, line_delay_s=self._rng.uniform(0.0, _LATEST_LINE_S))
        if fault.end is not End.NOT:
            return msgspec.structs.replace(fault, after_lines=self._rng.randrange(_MOST_LINES))
        return fault


#: What can't be judged from outside of processes on a real clock (docs/design/invariants.md).
_TOLD: Final = tuple(f"S{number}" for number in range(1, 12))
_SHOWN: Final = (*_TOLD, *(name for name in LIVENESS if name in {"L2", "L3"}))


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one run; times in seconds."""

    seed: int
    minutes: float
    wall_s: float
    kills: Mapping[str, int]
    stops: Mapping[str, int]
    mishaps: Mapping[str, int]
    pods_created: int
    gangs_created: int
    pods_run: int
    refused_by_kubelets: int
    versions_seen: int
    #: Pods that ran and were gone again while the observer had no API server: nobody judged them.
    unseen_pods: int
    #: From the last fault until all that fits ran, and from the deletion of all pods until nothing of ours was left.
    settled_s: float
    cleared_s: float
    #: What did not hold, in words.
    troubles: Sequence[str]
    invariants: Mapping[str, str]
    #: How often programs ended by themselves and were started again, and what those that failed said.
    ended: Mapping[str, int]
    last_words: Sequence[str]

    @property
    def is_sound(self) -> bool:
        """Whether everything held."""
        return not self.troubles and all(told in SOUND for told in self.invariants.values())

    def lines(self) -> Iterator[str]:
        """The report, for people."""
        yield f"{self.minutes:g} minutes of chaos, seed {self.seed} ({self.wall_s:.0f} s with start and end)"
        yield f"killed:    {_counted(self.kills)}"
        yield f"stopped:   {_counted(self.stops)}"
        yield f"ended:     {_counted(self.ended)} (by themselves: a leader that lost its lease does)"
        yield f"requests:  {_counted(self.mishaps)}"
        yield f"pods:      {self.pods_created} created ({self.gangs_created} gangs), {self.pods_run} ran, "
        yield f"           {self.refused_by_kubelets} refused by a kubelet, {self.unseen_pods} not judged"
        yield f"versions:  {self.versions_seen} of API objects were looked at"
        yield f"afterwards: all that fits ran within {self.settled_s:.1f} s;"
        yield f"           all pods deleted, nothing was left after {self.cleared_s:.1f} s"
        for name in _SHOWN:
            yield f"{name + ':':<11}{self.invariants[name]}"
        yield from self.last_words
        for trouble in self.troubles:
            yield f"NOT SOUND: {trouble}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing"


#: Two replicas of what elects a leader, two processes of simulated nodes.
MACHINES: Final = (NODES, "nodes-2")
EVERYBODY: Final = (ADMISSION, BINDER, "binder-2", SCHEDULER, "scheduler-2", *MACHINES)
#: Of each process of simulated nodes.
_SHAPES: Final = ("3x8x80GiB", "1x2x24GiB+2x80GiB")
POPULATION: Final = 200
#: Short, so that waiting for the lease of a dead leader is not all that a run is about.
_LEASE: Final = (
    *("--lease-duration-s", "5", "--lease-renew-deadline-s", "3.5"),
    *("--lease-renew-s", "1", "--lease-poll-s", "0.5"),
)
_ARGUMENTS: Final = {SCHEDULER: _LEASE, BINDER: (*_LEASE, "--idle-s", "1"), NODES: ("--keep",)}
#: Both more than twice as long as a pod that vanished unseen is waited for (sharing/entries.py).
_SETTLED_WITHIN_S: Final = 300.0
_CLEARED_WITHIN_S: Final = 240.0


def shapes() -> list[NodeShape]:
    """All simulated nodes, as their processes name them."""
    return [
        msgspec.structs.replace(one, name=f"{process.replace(NODES, 'simulated')}-{i}")
        for process in MACHINES
        for i, one in enumerate(shape.parse(_SHAPES))
    ]


def devices() -> dict[str, tuple[Device, ...]]:
    """The physical devices of each node."""
    return {one.name: make_devices(one, seed=0) for one in shapes()}


@dataclass(slots=True)
class _Chaos:
    """A run under way."""

    plane: ControlPlane
    moorage: Deployment
    luck: Luck
    journal: Journal
    transport: HttpTransport
    users: Users
    mischief: Mischief
    settled_s: float = -1.0
    cleared_s: float = -1.0
    troubles: list[str] = field(default_factory=list)

    async def rage(self, for_s: float) -> None:
        """Users and faults at once, for so long; then everybody is on his feet again."""
        _log.info("chaos for %.0f s", for_s)
        self.luck.turn_bad()
        with anyio.move_on_after(for_s):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.users.run)
                tasks.start_soon(self.mischief.run)
                tasks.start_soon(self.mischief.look_after)
        self.luck.turn_good()
        _log.info("calm")

    async def end(self) -> float:
        """Let the cluster come to rest and clear it; return when it was at rest, inf if it never was."""
        rested_s = math.inf
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.mischief.look_after)
                self.settled_s = await settled(self.transport, devices(), within_s=_SETTLED_WITHIN_S)
                rested_s = anyio.current_time()
                self.cleared_s = await cleared(self.transport, self.users, within_s=_CLEARED_WITHIN_S)
                tasks.cancel_scope.cancel()
        except* NotYet as missing:
            self.troubles += [str(each) for each in missing.exceptions]
        return rested_s

    async def judge(self, rested_s: float) -> tuple[judging.Machines, dict[str, str]]:
        """Look at the whole run."""
        if await newest(self.transport) < self.journal.newest:
            self.troubles.append("etcd went back behind what was read from it")
        self.mischief.collect_traces()
        self.troubles += self.mischief.traces
        leftovers = await listed_leftovers(self.transport)
        records = [self.moorage.records(name) for name in MACHINES]
        seen = judging.machines(records, self.journal)
        offset_s = time.monotonic() - SystemClock().now_ns() / 1e9
        story = in_order(self.journal, records, self.plane.audit_log_path, monotonic_minus_wall_s=offset_s)
        checker = judging.judge(story, devices(), unseen=seen.unseen, rested_s=rested_s, leftovers=leftovers)
        return seen, dict(checker.report)


async def run(*, minutes: float, seed: int, population: int = POPULATION) -> Result:
    """Make a control plane, let chaos reign on it for so long, and say what came of it.

    Raises tools.processes.ProcessDied and TimeoutError where the cluster does not even start.
    """
    began = anyio.current_time()
    async with _chaos(seed=seed, population=population) as chaos:
        await chaos.rage(minutes * 60)
        rested_s = await chaos.end()
        seen, report = await chaos.judge(rested_s)
    return Result(
        seed=seed,
        minutes=minutes,
        wall_s=anyio.current_time() - began,
        kills=chaos.mischief.kills,
        stops=chaos.mischief.stops,
        mishaps=chaos.luck.counts,
        pods_created=chaos.users.created,
        gangs_created=chaos.users.gangs,
        pods_run=len(seen.ran),
        refused_by_kubelets=len(seen.refused),
        unseen_pods=len(seen.unseen),
        versions_seen=chaos.journal.versions,
        settled_s=chaos.settled_s,
        cleared_s=chaos.cleared_s,
        troubles=chaos.troubles,
        invariants=report,
        ended=chaos.mischief.ended,
        last_words=chaos.mischief.last_words,
    )


@asynccontextmanager
async def _chaos(*, seed: int, population: int) -> AsyncIterator[_Chaos]:
    """Everything in place, and nothing wrong yet."""
    luck = Luck(_rng(seed, "luck"))
    async with (
        _control_plane() as plane,
        FaultyProxy(plane.url, ca_pem=plane.ca_pem, fate=luck) as proxy,
        HttpTransport(_administrator(plane), user_agent="chaos") as transport,
        _deployed(plane, proxy.url) as moorage,
        anyio.create_task_group() as tasks,
    ):
        with Journal(plane.folder / "journal.jsonl") as journal:
            observers = {plural: Observer(transport, plural, journal.take) for plural in SHOWN}
            for each in observers.values():
                await tasks.start(each.run)
            api = Api(transport, retry=Retry(_rng(seed, "retry")))
            await api.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            pods, rng = observers[PODS].latest, _rng(seed, "users")
            yield _Chaos(
                plane=plane,
                moorage=moorage,
                luck=luck,
                journal=journal,
                transport=transport,
                users=Users(api, pods, shapes=shapes(), population=population, rng=rng),
                mischief=Mischief(plane, moorage, EVERYBODY, _rng(seed, "mischief")),
            )
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def _control_plane() -> AsyncIterator[ControlPlane]:
    """Start and stop in a thread: what blocks must not hold up the proxy."""
    plane = ControlPlane(audit_policy=AUDIT_POLICY)
    await anyio.to_thread.run_sync(plane.start)
    try:
        yield plane
    finally:
        plane.stop()


@asynccontextmanager
async def _deployed(plane: ControlPlane, server: str) -> AsyncIterator[Deployment]:
    """Moorage, which finds the API server at ``server``; likewise."""
    components = tuple(name for name in EVERYBODY if name not in MACHINES)
    options = Options(arguments=_ARGUMENTS, components=components, nodes=_SHAPES, server=server, keep_records=True)
    with contextlib.ExitStack() as stack:
        moorage = Deployment(plane, options)
        await anyio.to_thread.run_sync(moorage.__enter__)
        stack.push(moorage)
        for further in MACHINES[1:]:
            moorage.start(further)
            await anyio.to_thread.run_sync(partial(moorage.wait_for_nodes, further))
        yield moorage


def _administrator(plane: ControlPlane) -> Credentials:
    return config.plain(plane.url, ca_file=str(plane.folder / "ca.crt"), token=plane.token)


def _rng(seed: int, purpose: str) -> random.Random:
    return random.Random(f"{seed}/{purpose}")
