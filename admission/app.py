"""The webhooks as a component: namespaces are followed, reviews are answered."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import anyio
from anyio.abc import TaskStatus

from admission.certificates.tls import Shown
from admission.namespaces import NamespaceChoices
from admission.objects.review import KnownQueues, ObjectAdmission
from admission.review import PodAdmission
from admission.server import Endpoint, ReviewAnswered, WebhookServer
from admission.settings import Settings
from admission.tracing import PodTraces
from kube.client.api import Api
from kube.client.resources import NAMESPACES
from kube.telemetry.logevents import EventSink, ignore
from kube.telemetry.tracing import Tracer
from kube.watch.reflector import Reflector


async def run(  # noqa: PLR0913 - keywords, each a part that a test may replace
    api: Api,
    *,
    settings: Settings,
    endpoint: Endpoint,
    shown: Shown,
    rng: random.Random,
    stop: anyio.Event,
    emit: EventSink[ReviewAnswered] = ignore,
    show_watches: Callable[[Sequence[Reflector[Any]]], None] = ignore,
    tracer: Tracer | None = None,
    task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the webhooks until ``stop`` is set, and then until they are drained. Reports the port it listens on.

    The port is open at once, so that the process is alive; it is ready when the namespaces are known
    and what it shows is trusted.
    """
    choices = NamespaceChoices(settings.choices)
    reflector = Reflector(api, NAMESPACES, choices, rng=rng)
    traces = PodTraces(tracer, rng=rng) if tracer is not None else None
    admission = PodAdmission(settings, rng=rng, choices_of=choices, traces=traces)
    show_watches([reflector])
    objects = ObjectAdmission(KnownQueues(api))
    server = WebhookServer(admission, endpoint, shown, is_ready=reflector.synced.is_set, emit=emit, objects=objects)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reflector.run)
        task_status.started(await tasks.start(server.run))
        await stop.wait()
        server.stop()
        await server.stopped.wait()
        tasks.cancel_scope.cancel()
