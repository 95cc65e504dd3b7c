"""Identities of simulated reservation processes: a token bound to the pod each, asked for as kubelet does.

So the API server knows of a request which pod it comes from, and the policy that lets a reservation process speak of
its own pod only (admission/policies.py) judges a simulated one exactly as a real one.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from kube.client import errors
from kube.client.api import Api, Token
from kube.client.config import Authorization
from kube.client.transport import Transport
from wire.core import Pod

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
    """``await tokens(pod)`` is the transport of a process in that pod.

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
