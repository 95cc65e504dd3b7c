"""Calls on the API server: objects, bindings, evictions, tokens. Decoding, time-outs and errors in one place.

Every write carries ``?timeout=`` so that the server gives it up when we do. Nothing here retries a write whose outcome
is unknown: that is for the caller to settle (docs/design/protocol.md). Retries of what is safe are
kube/client/retry.py's.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

import msgspec

from kube.client import errors
from kube.client.clock import SystemClock
from kube.client.decoding import Codec, Undecoded
from kube.client.errors import Conflict, NotFound
from kube.client.fence import CLIENT_MARGIN_S, WriteFence
from kube.client.listing import Listing, read_list
from kube.client.resources import PODS, SERVICE_ACCOUNTS, Resource
from kube.client.retry import Retry
from kube.client.server_time import ServerClock, WatchLag
from kube.client.transport import JSON, LISTED_METADATA, METADATA, Response, Transport, deadline
from wire.core import Binding, ObjectMeta, Status

T = TypeVar("T", bound=msgspec.Struct)
K = TypeVar("K")


MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
_JSON: Final = "application/json"

#: What ends or begins a requirement of a field selector, unless it is escaped.
_OF_SELECTORS: Final = re.compile(r"[\\,=]")
_ESCAPE: Final = r"\\\g<0>"

_encode: Final = msgspec.json.Encoder().encode


class Token(msgspec.Struct, frozen=True):
    """A bearer token and for how many seconds from its request the server takes it."""

    value: str
    lifetime_s: int


class _TokenSpec(msgspec.Struct, frozen=True, rename="camel"):
    expiration_seconds: int


class _TokenStatus(msgspec.Struct, frozen=True):
    token: str


class _TokenRequest(msgspec.Struct, frozen=True):
    spec: _TokenSpec
    status: _TokenStatus


class Api:
    """Typed calls over one Transport, under its identity.

    ``timeout_s`` bounds every request; the server gives a write up after it, we a little later. ``fence`` is a leader's
    (kube/lead/lease.py): time-outs of writes are cut to what is left of its lease, and what could not be over by then
    is not sent (errors.TooLate). ``lag`` learns what was written, and what this Api's reflectors show.

    Every call raises kube.client.errors.ApiError's kinds, and nothing else for what the server or the network does.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        timeout_s: float = 10.0,
        retry: Retry,
        fence: WriteFence | None = None,
        lag: WatchLag | None = None,
    ) -> None:
        self.lag = lag
        #: The API server's clock; before its first answer, the machine's.
        self.clock = ServerClock(transport, fallback=SystemClock())
        self._transport: Transport = self.clock
        self._timeout_s = timeout_s
        self._retry = retry
        self._fence = fence or WriteFence()
        self._codecs: dict[tuple[str, type[msgspec.Struct]], Codec[Any]] = {}

    def unfenced(self) -> Api:
        """Return calls that no lease holds back: for reviews, which change nothing, on a replica that follows."""
        return Api(self._transport, timeout_s=self._timeout_s, retry=self._retry)

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T:
        """Read one object from etcd (no resourceVersion is sent, so no cache of the server answers)."""
        response = await self._read(resource.object_path(namespace, name), {}, resource.most_bytes)
        return self._decode(resource, response)

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        skip_undecodable: bool = False,
    ) -> Listing[T]:
        """Read a consistent list from etcd, in pages, yielding to other tasks between them.

        A list that a decision rests on must be whole, so one object that does not decode raises errors.Undecodable,
        unless ``skip_undecodable``: then it is named in ``Listing.undecoded``.
        """
        query = selectors(label_selector=label_selector, field_selector=field_selector)
        listing = await self._list(resource, resource.path(namespace), query, _itself)
        if listing.undecoded and not skip_undecodable:
            raise errors.Undecodable(f"{resource.kind} {listing.undecoded[0].key}: {listing.undecoded[0].error}")
        return listing

    async def digest(
        self,
        resource: Resource[T],
        keep: Callable[[T], K],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> Listing[K]:
        """Read a list like ``list``, but keep of each object only what ``keep`` makes of it.

        Each object is released before the next one is decoded, so a long list never is in memory as a whole. ``keep``
        must change nothing: when the list breaks off, what it made is dropped. Objects that do not decode are named in
        ``Listing.undecoded``.
        """
        query = selectors(label_selector=label_selector, field_selector=field_selector)
        return await self._list(resource, resource.path(namespace), query, keep)

    async def create(self, resource: Resource[T], obj: msgspec.Struct | Mapping[str, Any], *, namespace: str = "") -> T:
        """Create an object, given as a struct or as plain data; return it as stored."""
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **_plain(obj)}
        response = await self._write("POST", resource.path(namespace), body)
        return self._written(resource, response)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        subresource: str = "",
        uid: str = "",
        resource_version: str = "",
    ) -> T:
        """Patch an object and return it as stored.

        A mapping is a merge patch (RFC 7396); ``uid`` and ``resource_version`` go into its metadata as preconditions
        and raise errors.Conflict when they fail. A sequence is a JSON patch (RFC 6902); its preconditions are its own
        ``test`` operations.
        """
        path = resource.object_path(namespace, name, subresource)
        if not isinstance(patch, Mapping):
            if uid or resource_version:
                raise ValueError("uid and resource_version are preconditions of merge patches; use a `test` operation")
            return self._written(resource, await self._write("PATCH", path, list(patch), content_type=JSON_PATCH))
        body = _with_preconditions(patch, uid=uid, resource_version=resource_version)
        try:
            response = await self._write("PATCH", path, body, content_type=MERGE_PATCH)
        except errors.Invalid as error:
            if uid and _names_uid(error):
                # The server may see the precondition as an attempt to change an immutable field.
                raise errors.Conflict(409, error.status) from error
            raise
        return self._written(resource, response)

    async def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        resource_version: str = "",
        grace_s: int | None = None,
    ) -> None:
        """Ask for an object's deletion; errors.Conflict when it is not the one named by ``uid``/``resource_version``.

        Finalizers and a grace period may keep it for a while after this returns.
        """
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **_delete_options(uid, resource_version, grace_s)}
        await self._write("DELETE", resource.object_path(namespace, name), body)

    async def bind(self, namespace: str, name: str, binding: Binding) -> None:
        """Bind a pod to a node. The answer is a bare Status: it tells no resourceVersion."""
        body = {**_plain(binding), "apiVersion": "v1", "kind": "Binding"}
        await self._write("POST", PODS.object_path(namespace, name, "binding"), body)

    async def evict(self, pod_namespace: str, pod_name: str, *, uid: str = "", grace_s: int | None = None) -> None:
        """Evict a pod, respecting PodDisruptionBudgets: errors.TooManyRequests when one forbids it now.

        So 429 is an answer here, and is not retried. A pod of another ``uid`` is not evicted, but the answer comes
        late: the server tries for ten seconds, then answers 409; with a shorter time-out 504, or it hangs up.
        """
        body: dict[str, Any] = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod_name, "namespace": pod_namespace},
        }
        if options := _delete_options(uid, "", grace_s):
            body["deleteOptions"] = options
        await self._write_once("POST", PODS.object_path(pod_namespace, pod_name, "eviction"), body, _JSON)

    async def token(self, namespace: str, account: str, *, pod: ObjectMeta, lifetime_s: int) -> Token:
        """Ask for a service account's token that lives no longer than ``pod``, as kubelet mounts it (KEP-1205).

        Nothing is stored by it, so it is tried again like a read. errors.Conflict: the pod has another UID by now.
        """
        path = SERVICE_ACCOUNTS.object_path(namespace, account, "token")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_s, "boundObjectRef": bound},
        }
        response = await self._retry.read(lambda: self._write_once("POST", path, body, _JSON))
        try:
            answer = msgspec.json.decode(response.body, type=_TokenRequest)
        except msgspec.DecodeError as error:
            raise errors.Undecodable(f"TokenRequest: {error}") from error
        return Token(answer.status.token, answer.spec.expiration_seconds)

    def stream(
        self, resource: Resource[Any], query: Mapping[str, str], *, namespace: str = ""
    ) -> AbstractAsyncContextManager[tuple[Response, AsyncIterator[bytes]]]:
        """Open a watch (kube/watch/reflector.py). Its head's status is the caller's to check, with ``check``."""
        path = resource.path(namespace)
        accept = METADATA if resource.metadata_only else JSON
        return self._transport.stream(path, query={**query, "watch": "true"}, accept=accept, timeout_s=self._timeout_s)

    async def _list(
        self, resource: Resource[T], path: str, query: Mapping[str, str], keep: Callable[[T], K]
    ) -> Listing[K]:
        async def read(query: Mapping[str, str], most_bytes: int) -> Response:
            return await self._read(path, query, most_bytes, LISTED_METADATA if resource.metadata_only else JSON)

        return await read_list(read, query, self._codec(resource), keep)

    async def _read(self, path: str, query: Mapping[str, str], most_bytes: int, accept: str = JSON) -> Response:
        async def once() -> Response:
            deadline_s = self._timeout_s + CLIENT_MARGIN_S
            with deadline(deadline_s, f"GET {path}"):
                answer = await self._transport.request(
                    "GET", path, query=query, accept=accept, timeout_s=deadline_s, most_bytes=most_bytes
                )
                return check(answer)

        return await self._retry.read(once)

    async def _write(self, method: str, path: str, body: object, *, content_type: str = _JSON) -> Response:
        return await self._retry.write(lambda: self._write_once(method, path, body, content_type))

    async def _write_once(self, method: str, path: str, body: object, content_type: str) -> Response:
        with self._fence.write(self._timeout_s) as times, deadline(times.wait_s, f"{method} {path}"):
            response = await self._transport.request(
                method,
                path,
                query={"timeout": go_duration(times.server_s)},
                body=_encode(body),
                content_type=content_type,
                timeout_s=times.wait_s,
            )
            return check(response)

    def _written(self, resource: Resource[T], response: Response) -> T:
        obj = self._decode(resource, response)
        if self.lag is not None:
            self.lag.wrote(resource.plural, _metadata(obj))
        return obj

    def _decode(self, resource: Resource[T], response: Response) -> T:
        obj = self._codec(resource).one(response.body)
        if isinstance(obj, Undecoded):
            raise errors.Undecodable(f"{resource.kind} {obj.key}: {obj.error}")
        return obj

    def _codec(self, resource: Resource[T]) -> Codec[T]:
        key = (resource.plural, resource.type)
        codec: Codec[T] | None = self._codecs.get(key)
        if codec is None:
            codec = self._codecs[key] = Codec(resource)
        return codec


def check(response: Response) -> Response:
    """Return a successful answer; raise kube.client.errors.Refused's kind for another."""
    if response.status < 300:
        return response
    try:
        status = msgspec.json.decode(response.body, type=Status)
    except msgspec.DecodeError:
        # A proxy, or the server in an early stage of life, answers in prose.
        status = Status(code=response.status, message=response.body[:200].decode("utf-8", "replace"))
    raise errors.refused(response.status, status, retry_after_s=_retry_after_s(response.headers))


def selectors(*, label_selector: str, field_selector: str) -> dict[str, str]:
    """Query parameters of a list or watch; empty selectors are left out."""
    given = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {name: value for name, value in given.items() if value}


def field_is(field: str, value: str) -> str:
    """Return a field selector for one value, whose commas and equals signs begin no other requirement."""
    return f"{field}={_OF_SELECTORS.sub(_ESCAPE, value)}"


def go_duration(seconds: float) -> str:
    """Seconds as Go's time.ParseDuration reads them, in whole milliseconds, rounded down: ``10s``, ``9500ms``."""
    milliseconds = math.floor(seconds * 1000)
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def _metadata(obj: Any) -> ObjectMeta:
    metadata: ObjectMeta = obj.metadata
    return metadata


def _itself(obj: T) -> T:
    return obj


def _plain(obj: msgspec.Struct | Mapping[str, Any]) -> Mapping[str, Any]:
    plain: Mapping[str, Any] = obj if isinstance(obj, Mapping) else msgspec.to_builtins(obj)
    return plain


def _with_preconditions(patch: Mapping[str, Any], *, uid: str, resource_version: str) -> Mapping[str, Any]:
    given = {"uid": uid, "resourceVersion": resource_version}
    preconditions = {name: value for name, value in given.items() if value}
    if not preconditions:
        return patch
    return {**patch, "metadata": {**patch.get("metadata", {}), **preconditions}}


def _delete_options(uid: str, resource_version: str, grace_s: int | None) -> dict[str, Any]:
    given = {"uid": uid, "resourceVersion": resource_version}
    preconditions = {name: value for name, value in given.items() if value}
    options: dict[str, Any] = {"preconditions": preconditions} if preconditions else {}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return options


def _names_uid(error: errors.Invalid) -> bool:
    causes = (error.status.details or {}).get("causes") or ()
    return any(isinstance(cause, Mapping) and cause.get("field") == "metadata.uid" for cause in causes)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    # The API server writes whole seconds; the header's other form, a date, would need its clock.
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None


async def remove(api: Api, resource: Resource[Any], name: str, *, namespace: str, uid: str) -> None:
    """Delete the object of this name and UID; return when it is not there, or was asked to go.

    A 409 usually says that another object has the name now, but it does not say so for sure, and who is wrong here
    leaves the object behind for good: a quorum read tells. Raises ApiError when it is not settled: ask again.
    """
    try:
        await api.delete(resource, name, namespace=namespace, uid=uid)
    except NotFound:
        return
    except Conflict:
        if await _is_there(api, resource, name, namespace=namespace, uid=uid):
            raise


async def _is_there(api: Api, resource: Resource[Any], name: str, *, namespace: str, uid: str) -> bool:
    try:
        found = await api.get(resource, name, namespace=namespace)
    except NotFound:
        return False
    return bool(found.metadata.uid == uid)
