"""What a simulated node reads from and writes to the API server about its pods, with kubelet's patience."""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api, Token
from kube.client.config import Authorization
from kube.client.resources import CONFIG_MAPS, PODS, Resource
from kube.client.transport import Transport
from simulator.nodes import containers
from wire.core import Container, ObjectMeta, Pod


class Secret(msgspec.Struct, frozen=True, gc=False):
    """A Secret; values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None

    def text(self) -> dict[str, str]:
        """Return the values decoded; bytes that are not UTF-8 are replaced, as no environment can hold them."""
        return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in (self.data or {}).items()}


SECRETS = Resource(version="v1", plural="secrets", kind="Secret", namespaced=True, type=Secret)


_log: Final = logging.getLogger(__name__)

#: Returns the transport on which the process in a pod talks to the API server.
PodIdentity = Callable[[Pod], Awaitable[Transport]]

_LIFETIME_S: Final = 3600
#: Kubelet renews a token when four fifths of its life are over.
_RENEW_AFTER: Final = 0.8


def always(transport: Transport) -> PodIdentity:
    """Return one identity for all pods, for an API server that asks nobody who he is."""

    async def identity(_: Pod) -> Transport:
        return transport

    return identity


@dataclass(slots=True, kw_only=True)
class PodTokens:
    """Identities of simulated reservation processes: ``await tokens(pod)`` is the transport of a process in that pod.

    Each has a token bound to the pod, asked for as kubelet does. So the API server knows of a request which pod it
    comes from, and the policy that lets a reservation process speak of its own pod only (admission/policies.py) judges
    it like a real one.

    ``api`` may ask for tokens of the pods' service accounts; ``under`` makes a transport under a token
    (kube.client.http.HttpTransport.under).
    """

    api: Api
    under: Callable[[Authorization], Transport]
    retry_s: float = 1.0

    async def __call__(self, pod: Pod) -> Transport:
        """Return when there is a token: without one kubelet starts no container, and tries again."""
        while True:
            try:
                token = await self.ask(pod)
            except errors.ApiError as error:
                _log.warning("no token for pod %s/%s yet: %s", pod.metadata.namespace, pod.metadata.name, error)
                await anyio.sleep(self.retry_s)
            else:
                return self.under(_Mounted(self, pod, token, anyio.current_time()))

    async def ask(self, pod: Pod) -> Token:
        """Ask for a token. Raises kube.client.errors.ApiError's kinds."""
        account = pod.spec.service_account_name or "default"
        return await self.api.token(pod.metadata.namespace, account, pod=pod.metadata, lifetime_s=_LIFETIME_S)


@dataclass(slots=True)
class _Mounted:
    """The Authorization of one pod: its token, kept fresh. One that can't be renewed is used until it expires."""

    tokens: PodTokens
    pod: Pod
    token: Token
    asked_at: float

    async def __call__(self) -> str:
        now = anyio.current_time()
        if now - self.asked_at >= self.token.lifetime_s * _RENEW_AFTER:
            try:
                self.token, self.asked_at = await self.tokens.ask(self.pod), now
            except errors.ApiError as error:
                _log.warning("token of pod %s can't be renewed: %s", self.pod.metadata.name, error)
        return f"Bearer {self.token.value}"


#: What a kubelet tries again. Refusals of its rights as well: tokens, roles and policies change, and it goes on.
_PASSING = (
    errors.Unreachable,
    errors.ServerError,
    errors.TooManyRequests,
    errors.Unauthorized,
    errors.Forbidden,
)


@dataclass(slots=True)
class Reporter:
    """One node's line to the API server. While it is ``cut`` nothing goes through, and everybody waits."""

    api: Api
    writers: anyio.CapacityLimiter
    retry_s: float
    _connected: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        self._connected.set()

    @property
    def is_connected(self) -> bool:
        """Whether the line is up."""
        return self._connected.is_set()

    def cut(self) -> None:
        """Lose the line."""
        if self.is_connected:
            self._connected = anyio.Event()

    def mend(self) -> None:
        """Have the line back."""
        self._connected.set()

    async def write_status(self, pod: Pod, make: Callable[[Pod], dict[str, Any]]) -> Pod | None:
        """Write ``make(pod)`` as the pod's status until it is there; return the pod as stored, None if it is gone.

        The pod's resourceVersion is a precondition, so that no condition of another writer is lost.
        """
        while True:
            try:
                return await self._patch_status(pod, make(pod))
            except errors.NotFound:
                return None
            except errors.Conflict:
                fresh = await self._read_again(pod)
                if fresh is None:
                    return None
                if fresh.metadata.resource_version == pod.metadata.resource_version:
                    # Refused though nobody else has written: asked again like any other failure.
                    await anyio.sleep(self.retry_s)
                pod = fresh
            except _PASSING:
                await anyio.sleep(self.retry_s)

    async def remove(self, pod: Pod) -> None:
        """Delete a pod at once, by UID, until it is gone or going."""
        meta = pod.metadata
        while True:
            await self._connected.wait()
            try:
                async with self.writers:
                    await self.api.delete(PODS, meta.name, namespace=meta.namespace, uid=meta.uid, grace_s=0)
            except (errors.NotFound, errors.Conflict):
                return
            except _PASSING:
                await anyio.sleep(self.retry_s)
            else:
                return

    async def sources(self, pod: Pod, container: Container) -> containers.Sources:
        """Read the ConfigMaps and Secrets that a container's environment is made from."""
        wanted = sorted(containers.sources_of(container))
        return {(kind, name): await self._source(kind, name, pod.metadata.namespace) for kind, name in wanted}

    async def _patch_status(self, pod: Pod, status: dict[str, Any]) -> Pod:
        meta = pod.metadata
        await self._connected.wait()
        async with self.writers:
            return await self.api.patch(
                PODS,
                meta.name,
                {"status": status},
                namespace=meta.namespace,
                subresource="status",
                uid=meta.uid,
                resource_version=meta.resource_version,
            )

    async def _read_again(self, pod: Pod) -> Pod | None:
        try:
            fresh = await self.api.get(PODS, pod.metadata.name, namespace=pod.metadata.namespace)
        except errors.NotFound:
            return None
        except errors.ApiError:
            await anyio.sleep(self.retry_s)
            return pod
        return fresh if fresh.metadata.uid == pod.metadata.uid else None

    async def _source(self, kind: str, name: str, namespace: str) -> dict[str, str] | None:
        await self._connected.wait()
        try:
            if kind == containers.SECRET:
                return (await self.api.get(SECRETS, name, namespace=namespace)).text()
            return (await self.api.get(CONFIG_MAPS, name, namespace=namespace)).data or {}
        except errors.ApiError:
            # Not there, or not readable now: kubelet waits in either case.
            return None
