"""The process of ``moorage admission``, and the count of its reviews."""

from __future__ import annotations

import socket
from functools import partial
from typing import Final

import anyio
import msgspec

from admission.app import run as serve_admission
from admission.certificates.rotation import Rotation, SelfMade
from admission.certificates.tls import Files, FilesShown, Shown
from admission.server import Answered, Endpoint, ReviewAnswered
from admission.settings import Choices, Settings
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.retry import Retry
from kube.client.server_time import ServerClock
from kube.lead.lease import incarnation
from runtime import connections, process
from runtime.metrics.declared import REVIEW_SECONDS
from runtime.metrics.registry import CountedTransport, Registry, count_watches, show
from runtime.options.manifests import dialects_of
from runtime.process import listening
from runtime.settings.admission import AdmissionOptions
from runtime.text import BadInput
from runtime.tracing import tracer as tracing

WEBHOOKS: Final = ("adopt", "mutate", "validate", "queue", "podgroup")


class ReviewMetrics:
    """Counts reviews by webhook and answer."""

    def __init__(self, registry: Registry) -> None:
        self._seconds = registry.histogram(REVIEW_SECONDS)
        # Shown as 0 from the start: a series that begins with its first failure has no increase to alert of.
        for webhook in WEBHOOKS:
            for answered in (Answered.FAILED, Answered.MALFORMED):
                self._seconds.labels(webhook, answered.value)

    def take(self, event: ReviewAnswered) -> None:
        """Count an event."""
        self._seconds.labels(event.webhook, event.answered.value).observe(event.took_s)


def settings(options: AdmissionOptions) -> Settings:
    """Return what is chosen about the webhooks. Raises BadInput for a file of dialects that can't be."""
    dialects = dialects_of(options.dialects)
    dialects = msgspec.structs.replace(
        dialects,
        sharing=dialects.sharing and options.gpu_sharing_enabled,
        driver_memory_caps=dialects.driver_memory_caps or options.driver_memory_caps,
    )
    return Settings(
        hand_over=options.hand_over,
        runtime_class=options.gpu_fraction_runtime_class_name,
        choices=Choices(
            guard=options.visible_devices_guard,
            dialects=dialects,
        ),
        gpu_resources=options.gpu_resource,
        shares_by_claims=options.shares_by_claims,
        origins=options.adopt_from,
        workloads_are_grouped=options.workloads_are_grouped,
        critical_namespaces=options.critical_namespace,
    )


def certificates(options: AdmissionOptions) -> Files | SelfMade:
    """Return which certificates are chosen. Raises BadInput unless it is one way of the two."""
    certificate, key = options.certificate, options.key
    ways = "allowed: either --self-made-certificates, or --certificate and --key"
    if options.self_made_certificates:
        if certificate or key:
            raise BadInput(f"certificates are self-made, and read from files as well; {ways}")
        names = frozenset(options.certificate_name) or SelfMade().names
        return SelfMade(names=names, lifetime_s=int(options.certificate_lifetime or SelfMade().lifetime_s))
    if options.certificate_name or options.certificate_lifetime:
        raise BadInput(
            "--certificate-name and --certificate-lifetime are of --self-made-certificates, which is not given"
        )
    if not certificate or not key:
        files = {"--certificate": certificate, "--key": key}
        missing = " and ".join(flag for flag, path in files.items() if not path)
        raise BadInput(f"no certificate for the webhooks: {missing} not given; {ways}")
    return Files(certificate=certificate, key=key)


async def run(options: AdmissionOptions, stop: anyio.Event) -> None:
    """Serve the webhooks."""
    chosen = settings(options)
    source = certificates(options)
    rng = process.rng()
    endpoint = Endpoint(host=options.host, port=options.port)
    replica = incarnation(socket.gethostname(), rng)
    registry = Registry()
    listener = listening("--metrics-bind-address", options.metrics_bind_address)
    opened = connections.transport(options, "admission", replica=replica)
    traced = tracing.tracer(options, "admission", registry=registry, clock=SystemClock())
    async with opened as transport, traced as tracer, anyio.create_task_group() as tasks:
        tasks.start_soon(show, registry, listener)
        clock = ServerClock(CountedTransport(transport, registry), fallback=SystemClock())
        api = Api(clock, retry=Retry(rng))
        shown: Shown = (
            Rotation(api, source, clock=clock, rng=rng) if isinstance(source, SelfMade) else FilesShown(source)
        )
        await serve_admission(
            api,
            settings=chosen,
            endpoint=endpoint,
            shown=shown,
            rng=rng,
            stop=stop,
            emit=ReviewMetrics(registry).take,
            show_watches=partial(count_watches, registry),
            tracer=tracer,
        )
        tasks.cancel_scope.cancel()
