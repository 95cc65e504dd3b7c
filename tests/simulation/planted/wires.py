"""Faulty connections: what a component says or hears over them is not what was meant.

Each stands for a mistake of a client: a cache in front of reads, a write split in two, a precondition left out, a value
rounded. A wire is made for each incarnation of a component, so what it remembers is forgotten in a crash.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import anyio
import msgspec
from typing_extensions import override

from kube.client.errors import ApiError
from kube.client.transport import JSON, OBJECT_BYTES, Response, Transport
from simulator.apiserver.transport import HEADERS
from wire import names

MERGE = "application/merge-patch+json"
POD = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods/(?P<name>[^/]+)")
PODS = re.compile(r"/api/v1/(namespaces/[^/]+/)?pods")
BINDING = re.compile(r"(?P<pod>/api/v1/namespaces/[^/]+/pods/[^/]+)/binding")

Json = dict[str, Any]


@dataclass(slots=True)
class Wire:
    """A connection that is as it should be."""

    inner: Transport

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = JSON,
        timeout_s: float,
        most_bytes: int = OBJECT_BYTES,
    ) -> Response:
        return await self.inner.request(
            method,
            path,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout_s=timeout_s,
            most_bytes=most_bytes,
        )

    def stream(
        self, path: str, *, query: Mapping[str, str], accept: str = JSON, timeout_s: float
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        return self.inner.stream(path, query=query, accept=accept, timeout_s=timeout_s)

    async def patch(self, path: str, body: Json, *, timeout_s: float = 10.0) -> Response:
        """Send a merge patch past whatever is faulty."""
        return await self.inner.request(
            "PATCH", path, query={}, body=msgspec.json.encode(body), content_type=MERGE, timeout_s=timeout_s
        )

    async def get(self, path: str) -> Json | None:
        """Read an object past whatever is faulty; None if it is not there."""
        answer = await self.inner.request("GET", path, query={}, timeout_s=10.0)
        return msgspec.json.decode(answer.body) if answer.status == 200 else None


def conflict(message: str) -> Response:
    """A 409 that the server never sent."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 409, "reason": "Conflict"}
    return Response(409, HEADERS, msgspec.json.encode({**status, "message": message}))


def missing(path: str) -> Response:
    """A 404 that the server never sent."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"}
    return Response(404, HEADERS, msgspec.json.encode({**status, "message": f"{path} not found"}))


def ok(obj: Json) -> Response:
    """A success that the server never sent."""
    return Response(200, HEADERS, msgspec.json.encode(obj))


@dataclass(slots=True)
class Rewriting(Wire):
    """Every object that comes is changed before it is read."""

    def rewritten(self, text: bytes) -> bytes:
        """An answer's body or a line of a watch as it is read."""
        raise NotImplementedError

    @override
    async def request(self, method: str, path: str, **rest: Any) -> Response:
        answer = await self.inner.request(method, path, **rest)
        return Response(answer.status, answer.headers, self.rewritten(answer.body))

    @override
    @asynccontextmanager
    async def stream(self, path: str, **rest: Any) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        async with self.inner.stream(path, **rest) as (head, lines):
            yield head, self._lines(lines)

    async def _lines(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            yield self.rewritten(line)


@dataclass(slots=True)
class ReadsThroughCache(Wire):
    """R1: objects are read out of what watches have shown, own writes too; what no watch has shown is not there."""

    _shown: dict[str, Json] = field(default_factory=dict)

    @override
    async def request(self, method: str, path: str, **rest: Any) -> Response:
        cached = self._shown.get(path) if method == "GET" else None
        if method == "GET" and "/configmaps/" in path:
            return missing(path)
        return ok(cached) if cached is not None else await self.inner.request(method, path, **rest)

    @override
    @asynccontextmanager
    async def stream(self, path: str, **rest: Any) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        async with self.inner.stream(path, **rest) as (head, lines):
            yield head, self._noted(lines) if PODS.fullmatch(path) else lines

    async def _noted(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            event = msgspec.json.decode(line)
            meta = event["object"].get("metadata") or {}
            path = f"/api/v1/namespaces/{meta.get('namespace')}/pods/{meta.get('name')}"
            if event["type"] == "DELETED":
                self._shown.pop(path, None)
            elif event["type"] in {"ADDED", "MODIFIED"}:
                self._shown[path] = event["object"]
            yield line


@dataclass(slots=True)
class DeletesUnfenced(Wire):
    """R1: what is deleted is named, and not said to be as it was seen."""

    @override
    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        if method == "DELETE" and body:
            options = msgspec.json.decode(body)
            options.pop("preconditions", None)
            body = msgspec.json.encode(options)
        return await self.inner.request(method, path, body=body, **rest)


@dataclass(slots=True)
class BindsInTwoWrites(Wire):
    """R2: a pod is bound, and then told its devices."""

    @override
    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        found = BINDING.fullmatch(path)
        if found is None or not body:
            return await self.inner.request(method, path, body=body, **rest)
        binding = msgspec.json.decode(body)
        told = {field: binding["metadata"].pop(field, None) for field in ("annotations", "labels")}
        answer = await self.inner.request(method, path, body=msgspec.json.encode(binding), **rest)
        if answer.status == 201 and any(told.values()):
            await self.patch(found["pod"], {"metadata": {key: value for key, value in told.items() if value}})
        return answer


@dataclass(slots=True)
class StartsHalfSynced(Wire):
    """R3: the first list of pods after a start comes from a server that has not caught up, under the newest version."""

    _listed: bool = False

    @override
    async def request(self, method: str, path: str, **rest: Any) -> Response:
        answer = await self.inner.request(method, path, **rest)
        if method != "GET" or self._listed or path != "/api/v1/pods" or answer.status != 200:
            return answer
        self._listed = True
        listing = msgspec.json.decode(answer.body)
        items = listing.get("items") or []
        return ok({**listing, "items": items[: len(items) // 2]})


@dataclass(slots=True)
class RoundsDown(Rewriting):
    """R4: memory is counted in whole GiB, fractions in hundredths, and what is over is dropped."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        text = re.sub(rb'("gpu-memory":")(\d+)"', self._whole_gib, text)
        return re.sub(rb'("gpu-fraction":"0\.\d\d)\d+"', rb'\1"', text)

    @staticmethod
    def _whole_gib(found: re.Match[bytes]) -> bytes:
        mib = int(found[2])
        return b'%s%d"' % (found[1], mib // 1024 * 1024 or mib)


@dataclass(slots=True)
class CountsSlicesAsCards(Rewriting):
    """R4 once more: a part of a MIG slice is charged as that part of the card, of which the slice is a seventh."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return re.sub(rb'(\\"nano\\":)(\d+)(,\\"mig\\":)', self._of_card, text)

    @staticmethod
    def _of_card(found: re.Match[bytes]) -> bytes:
        return b"%s%d%s" % (found[1], int(found[2]) // 7, found[3])


@dataclass(slots=True)
class ChargesWhatIsAskedNow(Rewriting):
    """R2 once more: what a bound pod is charged is read from the annotation that its user can edit."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return self._rewritten(text)

    def _rewritten(self, text: bytes) -> bytes:
        if names.GRANT.encode() not in text:
            return text
        obj = msgspec.json.decode(text)
        for pod in (obj.get("items") or [obj.get("object", obj)]) if isinstance(obj, dict) else []:
            self._charge(pod)
        return msgspec.json.encode(obj)

    @staticmethod
    def _charge(pod: Json) -> None:
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        with contextlib.suppress(ValueError, KeyError, TypeError):
            nano = math.ceil(Fraction(annotations[names.GPU_FRACTION]) * 10**9)
            grant = msgspec.json.decode(annotations[names.GRANT])
            for device in grant["devices"]:
                device["nano"] = nano
            annotations[names.GRANT] = msgspec.json.encode(grant).decode()


_NEWER = re.compile(rb',\\"(?:mode|compute_percent)\\":(?:\\"[^"\\]*\\"|\d+)')
_BOOK = re.compile(rb'"' + re.escape(names.TENANTS).encode() + rb'":"(?:[^"\\]|\\.)*"')


@dataclass(slots=True)
class DropsWhatIsNewer(Rewriting):
    """R9 once more: the newest fields of a book's entries are not read, so they are lost when the book is written."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return _BOOK.sub(lambda book: _NEWER.sub(b"", book[0]), text)


@dataclass(slots=True)
class TidiesUpOnce(Wire):
    """R6: a finalizer is taken off once; if that fails, it is not tried again."""

    _tried: set[str] = field(default_factory=set)

    @override
    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        if method != "PATCH" or not body or b'"finalizers"' not in body:
            return await self.inner.request(method, path, body=body, **rest)
        if path in self._tried:
            return ok(await self.get(path) or {"metadata": {}})
        self._tried.add(path)
        return await self.inner.request(method, path, body=body, **rest)


@dataclass(slots=True)
class LocksNodes(Wire):
    """R7: whoever binds a pod holds a lock on its node, an annotation, until the Binding is answered."""

    LOCK = "example.com/locked"

    @override
    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        if BINDING.fullmatch(path) is None or not body:
            return await self.inner.request(method, path, body=body, **rest)
        node = f"/api/v1/nodes/{msgspec.json.decode(body)['target']['name']}"
        if not await self._lock(node, path):
            return conflict(f"{node} is locked")
        answer = await self.inner.request(method, path, body=body, **rest)
        await self.patch(node, {"metadata": {"annotations": {self.LOCK: None}}})
        return answer

    async def _lock(self, path: str, owner: str) -> bool:
        node = await self.get(path)
        if node is None or self.LOCK in (node["metadata"].get("annotations") or {}):
            return False
        rv = node["metadata"]["resourceVersion"]
        answer = await self.patch(path, {"metadata": {"resourceVersion": rv, "annotations": {self.LOCK: owner}}})
        return answer.status == 200


@dataclass(slots=True)
class RetriesWhatWasWithdrawn(Wire):
    """R9 once more: a Binding that failed is posted again later, by name, whatever has been decided since."""

    AFTER_S = 3.0
    _again: list[tuple[float, str, Json]] = field(default_factory=list)

    @override
    async def request(self, method: str, path: str, *, body: bytes | None = None, **rest: Any) -> Response:
        await self._retry(rest["timeout_s"])
        if BINDING.fullmatch(path) is None or not body:
            return await self.inner.request(method, path, body=body, **rest)
        try:
            answer = await self.inner.request(method, path, body=body, **rest)
        except ApiError:
            self._remember(path, body)
            raise
        if answer.status != 201:
            self._remember(path, body)
        return answer

    def _remember(self, path: str, body: bytes) -> None:
        binding = msgspec.json.decode(body)
        for precondition in ("uid", "resourceVersion"):
            binding["metadata"].pop(precondition, None)
        self._again.append((anyio.current_time() + self.AFTER_S, path, binding))

    async def _retry(self, timeout_s: float) -> None:
        now_s = anyio.current_time()
        due = [entry for entry in self._again if entry[0] <= now_s]
        self._again = [entry for entry in self._again if entry[0] > now_s]
        for _, path, binding in due:
            body = msgspec.json.encode(binding)
            with contextlib.suppress(ApiError):
                await self.inner.request("POST", path, query={}, body=body, timeout_s=timeout_s)


_FRACTION = re.compile(rb'("gpu-fraction":")([^"]*)"')
_SOUND = re.compile(rb"(0?\.\d+|1e-3)")


def defaulted(text: bytes) -> bytes:
    """R12: what can't be read as a fraction is taken for a tenth."""
    return _FRACTION.sub(lambda found: found[0] if _SOUND.fullmatch(found[2]) else found[1] + b'0.1"', text)


@dataclass(slots=True)
class DefaultsWhatIsMalformed(Rewriting):
    """R12 as the scheduler and the binder read pods."""

    @override
    def rewritten(self, text: bytes) -> bytes:
        return defaulted(text)
