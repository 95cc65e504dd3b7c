"""The in-memory API server: the same answers as kube-apiserver to what Moorage asks, in one process.

Deterministic: identities come from the random source, times from the clock, order from the order of requests. Works
under a virtual-time loop. That it may be trusted is the business of tests/contract, which runs against it and against
a real server. Left out: authorisation, managedFields and server-side apply (415), dry runs (501), foreground deletion
(501), the disruption controller, schemas of custom resources, the core group's view of events, the not-ready taint of
new nodes and the token volume of new pods.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence

import anyio
import anyio.abc
import msgspec

from kube.client.clock import Clock
from kube.client.errors import Timeout
from kube.client.transport import Response, deadline
from kube.watch.signal import Signal
from simulator.apiserver import pods
from simulator.apiserver.admission import Admission, Webhook
from simulator.apiserver.calls import (
    AuditEntry,
    Call,
    Refusal,
    Router,
    WriteRecord,
    bad_request,
    not_found,
    not_implemented,
)
from simulator.apiserver.create import Creation, attributes_of
from simulator.apiserver.delete import Collector, Removing
from simulator.apiserver.faults import Faults
from simulator.apiserver.get import Reading, Watching, WatchStream, list_body, selector_of
from simulator.apiserver.store import Change, Store, Stored
from simulator.apiserver.transport import HEADERS, MemoryTransport, refusal_response
from simulator.apiserver.types import BUILT_IN, KAI, PODS, PRIORITY_CLASSES, Registry, ResourceType
from simulator.apiserver.update import Changing
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS

_SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
_CREATED = msgspec.json.encode({**_SUCCESS, "code": 201})
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")
_FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_FIRST_PRIORITIES = (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000))


class MemoryApiServer:
    """An API server whose clients are its transports."""

    def __init__(
        self,
        *,
        clock: Clock,
        rng: random.Random,
        extra_types: Sequence[ResourceType] = (),
        auto_namespaces: bool = False,
        pod_topology_labels: bool = True,
        history: int = 100_000,
    ) -> None:
        """Start with the namespaces and priority classes that every cluster has.

        ``auto_namespaces``: a create in a namespace that is not there makes it, instead of being refused.
        ``pod_topology_labels``: a Binding's labels are merged into the pod (Kubernetes 1.35 and later).
        ``history``: how many of the last changes, over all types, can be watched and listed from (then 410).
        """
        registry = self._registry = Registry((*BUILT_IN, *KAI, *extra_types))
        self._clock = clock
        #: The second that answers were dated last, and how.
        self._date = (-1, "")
        self._pod_topology_labels = pod_topology_labels
        self._store = Store(registry.types, history=history)
        #: What goes wrong between clients and the server.
        self.faults = Faults()
        self._admission = Admission(rng, self.faults)
        self._router = Router(registry)
        self._reading = Reading(self._store)
        self._creation = Creation(self._store, self._admission, clock=clock, rng=rng, auto_namespaces=auto_namespaces)
        self._changing = Changing(self._store, self._admission, self._creation)
        self._collector = Collector(self._store, registry, clock=clock)
        self._removing = Removing(self._store, self._admission, self._collector, clock=clock)
        self._watching = Watching(self._store, self.faults, rng=rng)
        self._is_running = False
        #: Requests to be carried out later, and when.
        self._late: list[tuple[Call, float]] = []
        self._new_late = Signal()
        #: How often ``restore`` was called.
        self.restores = 0
        #: Every answered request, in order.
        self.audit: list[AuditEntry] = []
        #: Every write that reached the server, in order.
        self.write_log: list[WriteRecord] = []
        self._fill()

    def _fill(self) -> None:
        for name in _FIRST_NAMESPACES:
            self._creation.put_namespace(name)
        for name, value in _FIRST_PRIORITIES:
            meta = {"name": name}
            head = {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": meta}
            tail = {"value": value, "preemptionPolicy": "PreemptLowerPriority"}
            self._creation.put_new(PRIORITY_CLASSES, {**head, **tail})

    # --- for the builder of a cluster

    def transport(self, user: str = "admin", *, groups: tuple[str, ...] = ("system:masters",)) -> MemoryTransport:
        """Return a connection of one client; killing it is that client's crash."""
        return MemoryTransport(self, user=user, groups=groups)

    def add_webhook(self, hook: Webhook) -> None:
        """Register an admission webhook."""
        self._admission.add(hook)

    def define(self, kind: ResourceType) -> None:
        """Serve a type from now on, as after its CustomResourceDefinition was created."""
        self._store.add(kind)
        self._registry.add(kind)

    def compact(self) -> None:
        """Forget all history up to the current version."""
        self._store.compact()

    def restore(self, rv: int, cut: Callable[[Call], bool] = lambda _: True) -> None:
        """Set the whole cluster back to version ``rv``, or to the oldest that is known.

        ``cut`` picks whose watches break.

        As after a restored etcd: a watcher has to list again (410), and finds objects as they were then.
        Requests that were to be carried out later are lost, as they are when an API server stops.
        """
        self.cut_watches(cut)
        self._late.clear()
        self.restores += 1
        self._store.restore(rv)
        self._collector.go_on()

    @property
    def types(self) -> tuple[ResourceType, ...]:
        """What is served."""
        return self._registry.types

    @property
    def resource_version(self) -> int:
        """The newest resourceVersion."""
        return self._store.rv

    def cut_watches(self, when: Callable[[Call], bool] = lambda _: True) -> int:
        """Break the watches that ``when`` picks, as a broken connection does; return how many."""
        watchers = [watcher for table in self._store.tables.values() for watcher in table.log.watchers]
        picked = [watcher for watcher in watchers if when(watcher.call)]
        for watcher in picked:
            watcher.break_off()
        return len(picked)

    def listen(self, tell: Callable[[ResourceType, bytes, bool], None]) -> None:
        """Tell of every object that is there, as JSON, and from then on of every change; True: the object is gone.

        It is called within the write, and is no client, so nothing else is different because of it.
        """
        for table in self._store.tables.values():
            for key in table.keys:
                tell(table.kind, table.objects[key].raw, False)
        self._store.listen(lambda table, change: tell(table.kind, *_told(change)))

    def undelivered(self, user: str) -> dict[str, int]:
        """For each kind (plural) of which a user watches all there is: changes that he has not been handed yet."""
        found: dict[str, int] = {}
        for table in self._store.tables.values():
            for watcher in table.log.watchers:
                if watcher.call.user == user and not watcher.call.namespace and not watcher.cut:
                    plural = watcher.call.kind.plural
                    found[plural] = found.get(plural, 0) + len(watcher.lines)
        return found

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Carry out late requests. Needed only where faults make requests late (``Fault.lands_after_s``)."""
        self._is_running = True
        async with anyio.create_task_group() as group:
            task_status.started()
            while True:
                await self._new_late.wait()
                late, self._late = self._late, []
                for call, at in late:
                    group.start_soon(self._answer_at, call, at, self.restores)

    # --- for the transport

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        user: str,
        groups: tuple[str, ...],
    ) -> Call:
        """Return what a request asks for. Raises Refusal."""
        return self._router.route(
            method, path, query=query, body=body, content_type=content_type, user=user, groups=groups
        )

    def log_write(self, method: str, path: str, body: bytes | None, user: str) -> None:
        """Record that a write came in."""
        digest = hashlib.blake2b(body or b"", digest_size=8).hexdigest()
        self.write_log.append(WriteRecord(user, method, path, digest))

    async def answer(self, call: Call) -> Response:
        """Carry out a call and return its answer."""
        try:
            timeout_s = _server_timeout_s(call)
            with contextlib.nullcontext() if timeout_s is None else deadline(timeout_s, call.verb):
                response = await self._carry_out(call)
        except Timeout:
            response = refusal_response(Refusal(504, "Timeout", "Timeout: request did not complete within its timeout"))
        except Refusal as refusal:
            response = refusal_response(refusal)
        self._record(call, response.status)
        return response

    def date(self) -> str:
        """Return the time as the Date of answers."""
        now_s = self._clock.now_ns() // SECOND_NS
        if self._date[0] != now_s:
            self._date = (now_s, email.utils.formatdate(now_s, usegmt=True))
        return self._date[1]

    def answer_later(self, call: Call, delay_s: float) -> None:
        """Carry out a call some time from now; nobody waits for the answer, and the caller may be gone by then."""
        if call.verb == "watch":
            return  # nobody listens to one that is opened late
        if not self._is_running:
            raise RuntimeError("late requests need MemoryApiServer.run() in a task group")
        self._late.append((call, anyio.current_time() + delay_s))
        self._new_late.set()

    async def _answer_at(self, call: Call, at: float, restores: int) -> None:
        await anyio.sleep_until(at)
        if restores == self.restores:
            await self.answer(call)

    def open_watch(self, call: Call) -> WatchStream:
        """Open a watch. Raises Refusal."""
        stream = self._watching.open(call)
        self._record(call, 200)
        return stream

    def _record(self, call: Call, code: int) -> None:
        self.audit.append(
            AuditEntry(
                user=call.user,
                verb=call.verb,
                resource=call.kind.plural,
                subresource=call.subresource,
                namespace=call.namespace,
                name=call.name,
                code=code,
            )
        )
        self.faults.answered(call, code)

    # --- verbs

    async def _carry_out(self, call: Call) -> Response:
        if call.query.get("dryRun"):
            raise not_implemented("dryRun")
        match call.verb:
            case "get" if not call.kind.plural:
                response = Response(200, HEADERS, self._registry.discovery(call.kind.group, call.kind.version))
            case "get":
                response = _object(200, self._reading.get(call))
            case "list":
                response = Response(200, HEADERS, self._reading.list(call))
            case "create":
                response = await self._create(call)
            case "update":
                response = _object(*await self._changing.replace(call))
            case "patch":
                response = _object(200, await self._changing.patch(call))
            case "delete":
                response = _deleted(call, *await self._removing.delete(call))
            case _:
                gone = await self._removing.delete_collection(call, selector_of(call))
                meta: dict[str, object] = {"resourceVersion": str(self._store.rv)}
                response = Response(200, HEADERS, list_body(call.kind, meta, gone))
        return response

    async def _create(self, call: Call) -> Response:
        match call.subresource:
            case "binding":
                await self._bind(call)
                return Response(201, HEADERS, _CREATED)
            case "eviction":
                await self._removing.evict(call)
                return Response(201, HEADERS, _CREATED)
            case _:
                return _object(201, await self._creation.create(call))

    async def _bind(self, call: Call) -> None:
        said = call.decoded()
        pods.check_binding(said, call.name)
        if self._admission.concerns(PODS, "binding", "CREATE"):
            attributes = attributes_of(call, "CREATE", old=None, store=self._store, name=call.name)
            said = await self._admission.mutate(said, attributes)
            await self._admission.validate(said, attributes)
        pod = self._store.get(PODS, call.key)
        if pod is None:
            raise not_found(PODS, call.name)
        now = rfc3339(self._clock.now_ns())
        self._store.put(PODS, call.key, pods.bound(pod.obj, said, with_labels=self._pod_topology_labels, now=now))


def _object(code: int, stored: Stored) -> Response:
    return Response(code, HEADERS, stored.raw)


def _deleted(call: Call, last: Stored, gone: bool) -> Response:
    if not gone or call.kind is PODS:
        return _object(200, last)
    details = {"name": call.name, "kind": call.kind.plural, "uid": last.obj["metadata"]["uid"]}
    if call.kind.group:
        details["group"] = call.kind.group
    return Response(200, HEADERS, msgspec.json.encode({**_SUCCESS, "details": details}))


def _server_timeout_s(call: Call) -> float | None:
    """Return the time after which the server gives a request up. Raises Refusal (400)."""
    text = call.query.get("timeout", "")
    if not text:
        return None
    match = _DURATION.fullmatch(text)
    if match is None:
        raise bad_request(f'invalid timeout specified in the request URL - time: invalid duration "{text}"')
    hours, minutes, seconds, millis = (float(each or 0) for each in match.groups())
    return (hours * 60 + minutes) * 60 + seconds + millis / 1000


def _told(change: Change) -> tuple[bytes, bool]:
    """An object as it is now, or was at its end, and whether it is gone."""
    if change.new is not None:
        return change.new.raw, False
    last = change.gone or change.old
    return (last.raw if last else b"{}"), True
