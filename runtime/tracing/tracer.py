"""The tracer of a process, if traces are asked for: opened with its settings, closed with what it still has to send."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio

from kube.client.clock import Clock
from kube.telemetry.tracing import Tracer
from runtime.metrics.declared import SPANS
from runtime.metrics.registry import Registry
from runtime.settings.common import Component
from runtime.text import BadInput

_SIGNAL: Final = "/v1/traces"
#: So long an ending process waits for the collector.
_CLOSE_S: Final = 3.0
_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_NOTHING: Final = {"exported": 0, "failed": 0, "dropped": 0}


@asynccontextmanager
async def tracer(
    options: Component, component: str, *, registry: Registry, clock: Clock
) -> AsyncIterator[Tracer | None]:
    """Open what settings ask for; None if they ask for nothing. Raises BadInput for headers that can't be read."""
    if not options.traces_endpoint:
        registry.read(SPANS, lambda: [((outcome,), 0) for outcome in _NOTHING])
        yield None
        return
    # 11 MiB and 0.3 s, for those who want traces.
    from runtime.tracing import exporter

    sink = exporter.Exporting(
        endpoint(options.traces_endpoint),
        resource=resource(component),
        headers=headers(options.traces_headers_file),
        ca_file=_readable(options.traces_ca_file),
    )
    registry.read(SPANS, lambda: [((outcome,), count) for outcome, count in sink.counts().items()])
    try:
        yield Tracer(sink, clock=clock, ratio_nano=options.traces_ratio)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(sink.close, _CLOSE_S)


def _readable(ca_file: str) -> str:
    if ca_file and not os.access(ca_file, os.R_OK):
        raise BadInput(f"--traces-ca-file {ca_file}: there is no such file, or it can't be read")
    return ca_file


def endpoint(given: str) -> str:
    """Where traces go: what is given, with OTLP's own path where it has none."""
    return given.rstrip("/") + _SIGNAL if urlsplit(given).path in {"", "/"} else given


def resource(component: str) -> Mapping[str, str]:
    """What is said of this process, in the words of OpenTelemetry's conventions."""
    told = {"service.name": f"moorage-{component}", "service.instance.id": socket.gethostname()}
    try:
        told["k8s.namespace.name"] = _NAMESPACE_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return told
    return {**told, "k8s.pod.name": os.environ.get("HOSTNAME") or socket.gethostname()}


def headers(file: str) -> Mapping[str, str]:
    """Read headers, one ``name: value`` a line. Raises BadInput; never with a value, which may be a password."""
    if not file:
        return {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"--traces-headers-file {file}: can't be read ({type(error).__name__})") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip().replace("-", "").isalnum() or not value.strip().isprintable():
            raise BadInput(f"--traces-headers-file {file}: line {number} is not NAME: VALUE")
        found[name.strip()] = value.strip()
    return found
