"""Replicas of the shell (rotation.py) on an in-memory API server, in virtual time, with certificates really made.

``Site.asked`` does what the API server does when it asks a replica: a handshake, and what it is shown is judged by the
``caBundle`` that stands in each configuration at that moment, at the time of that moment.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import random
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from admission.certificates.rotation import CONFIGURATIONS, Rotation, SelfMade
from admission.manifests import ServiceEndpoint, all_manifests
from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.resources import NAMESPACES, SECRETS
from kube.client.retry import Retry
from simulator.apiserver.calls import Call
from simulator.apiserver.faults import Fault
from simulator.apiserver.server import MemoryApiServer
from simulator.apiserver.types import ResourceType
from simulator.clock import VirtualClock
from wire import names

#: Renewed after 40 s or so, and followed within 5 s.
LIFETIME_S: Final = 60
NAME: Final = f"moorage-admission.{names.SYSTEM_NAMESPACE}.svc"
_REPLICA: Final = "replica"
_WITHIN_S: Final = 120.0
_MANIFESTS: Final = all_manifests(ServiceEndpoint(), ca=b"")
#: How many webhooks, each with a bundle of its own, all configurations have together.
WEBHOOKS: Final = sum(len(manifest["webhooks"]) for manifest in _MANIFESTS)
_EMPTY: Final = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": names.CERTIFICATES_SECRET},
    "type": "Opaque",
}


def _configuration_type(plural: str, kind: str) -> ResourceType:
    return ResourceType(
        group="admissionregistration.k8s.io",
        version="v1",
        plural=plural,
        kind=kind,
        namespaced=False,
        has_generation=True,
    )


_TYPES: Final = (
    _configuration_type("mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    _configuration_type("validatingwebhookconfigurations", "ValidatingWebhookConfiguration"),
)


@dataclass
class Site:
    """A cluster, as its administrator sees it."""

    server: MemoryApiServer
    clock: VirtualClock
    admin: Api
    replicas: list[Rotation] = field(default_factory=list)
    #: Verb and plural of what replicas have no right to.
    forbidden: set[tuple[str, str]] = field(default_factory=set)

    def refuse(self, call: Call) -> Fault | None:
        """Answer as RBAC does."""
        is_theirs = call.user == _REPLICA and (call.verb, call.kind.plural) in self.forbidden
        return Fault(refuse_with=403) if is_theirs else None

    async def bring_secret(self) -> None:
        """Apply the Secret of rbac.yaml where there is none."""
        await self.admin.create(SECRETS, _EMPTY, namespace=names.SYSTEM_NAMESPACE)

    async def delete_secret(self) -> None:
        await self.admin.delete(SECRETS, names.CERTIFICATES_SECRET, namespace=names.SYSTEM_NAMESPACE)

    async def fill_secret(self, content: dict[str, str] | None) -> None:
        """Have it hold this and nothing else."""
        held = dict.fromkeys(await self.secret())
        patch = {"data": None if content is None else {**held, **content}}
        await self.admin.patch(SECRETS, names.CERTIFICATES_SECRET, patch, namespace=names.SYSTEM_NAMESPACE)

    async def secret(self) -> dict[str, str]:
        """What the Secret holds."""
        found = await self.admin.get(SECRETS, names.CERTIFICATES_SECRET, namespace=names.SYSTEM_NAMESPACE)
        return found.data or {}

    async def bring_configurations(self) -> None:
        """Apply the webhooks as the chart has them, without any CA."""
        for (resource, _), manifest in zip(CONFIGURATIONS, _MANIFESTS, strict=True):
            await self.admin.create(resource, manifest)

    async def annotate(self, value: str | None, *, only: Sequence[int] = (0, 1, 2, 3)) -> None:
        """Name who injects the bundles, or nobody any more."""
        for resource, name in (CONFIGURATIONS[number] for number in only):
            patch = {"metadata": {"annotations": {"cert-manager.io/inject-ca-from": value}}}
            await self.admin.patch(resource, name, patch)

    async def bundles(self) -> list[bytes]:
        """The ``caBundle`` of each webhook of each configuration that there is."""
        found = []
        for resource, name in CONFIGURATIONS:
            try:
                one = await self.admin.get(resource, name)
            except NotFound:
                continue
            found += [base64.b64decode(each.client_config.ca_bundle or "") for each in one.webhooks or ()]
        return found

    async def asked(self, replica: Rotation) -> list[str]:
        """Why a review by this replica would fail now."""
        shown = _shown(replica.context)
        now = datetime.datetime.fromtimestamp(self.clock.now_ns() / 1e9, tz=datetime.UTC)
        return [why for bundle in await self.bundles() if (why := _distrusted(shown, bundle, now))]


@asynccontextmanager
async def site(*, secret: bool = True, configurations: bool = True) -> AsyncIterator[Site]:
    """A cluster with what rbac.yaml and the webhooks' manifests bring, and no replica yet."""
    clock = VirtualClock(asyncio.get_running_loop())
    server = MemoryApiServer(clock=clock, rng=random.Random(1), extra_types=_TYPES)
    made = Site(server, clock, Api(server.transport(), retry=Retry(random.Random(2))))
    server.faults.on_request.append(made.refuse)
    await made.admin.create(NAMESPACES, {"metadata": {"name": names.SYSTEM_NAMESPACE}})
    if secret:
        await made.bring_secret()
    if configurations:
        await made.bring_configurations()
    yield made


@asynccontextmanager
async def replica(of: Site, *, lifetime_s: int = LIFETIME_S) -> AsyncIterator[Rotation]:
    """One more replica; in the end it is gone as in a crash."""
    rng = random.Random(10 + len(of.replicas))
    api = Api(of.server.transport(_REPLICA, groups=()), retry=Retry(rng))
    made = Rotation(api, SelfMade(names=frozenset({NAME}), lifetime_s=lifetime_s), clock=of.clock, rng=rng)
    await made.begin()
    of.replicas.append(made)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        yield made
        tasks.cancel_scope.cancel()
    of.replicas.remove(made)


async def until(holds: Callable[[], bool]) -> None:
    """Let time pass until something holds. Raises TimeoutError."""
    with anyio.fail_after(_WITHIN_S):
        while not holds():  # noqa: ASYNC110 - nothing tells when, and the time is virtual
            await anyio.sleep(0.1)


async def ready(*replicas: Rotation) -> None:
    """Let time pass until all are ready."""
    await until(lambda: not any(each.unready() for each in replicas))


def _shown(context: ssl.SSLContext) -> x509.Certificate:
    """What a new connection is shown: both sides of a handshake, in memory."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = theirs.wrap_bio(to_client, to_server)
    for side in (client, server, client):
        _shake(side)
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def _shake(side: Any) -> None:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return


def _distrusted(shown: x509.Certificate, bundle: bytes, now: datetime.datetime) -> str:
    """Why a client with this bundle does not take the certificate."""
    if not bundle:
        return "there is no CA in the configuration"
    store = Store(x509.load_pem_x509_certificates(bundle))
    try:
        PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(NAME)).verify(shown, [])
    except VerificationError as error:
        return f"{now:%H:%M:%S}: {error}"
    return ""
