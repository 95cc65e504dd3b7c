"""Settings that components share: where the API server is, what is logged, how replicas agree on a leader."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from gpu.container_devices import Cdi
from gpu.limits import MemoryCaps
from kube.lead.lease import LeaseSettings
from runtime.kai_beside import IfKaiStarts
from runtime.settings import kinds
from runtime.settings.declaration import Setting

_LEASE: Final = LeaseSettings()
_LONGEST_LEASE_S: Final = 3600
_LEVELS: Final = ("debug", "info", "warning", "error")
Address = tuple[str, int]


#: Of scheduler and binder, both of which write books: the same for both.
WrittenCaps = Annotated[
    MemoryCaps,
    Setting(
        help="pods whose memory caps are written into books",
        kind=kinds.member(MemoryCaps),
    ),
]


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is and who we are there (runtime/connections.py)."""

    kubeconfig: Annotated[
        str,
        Setting(help="kubeconfig file", kind=kinds.FILE, default="none: the pod's service account"),
    ] = ""
    context: Annotated[
        str, Setting(help="context of the kubeconfig", kind=kinds.text("NAME"), default="its current one")
    ] = ""
    server: Annotated[str, Setting(help="API server; needs --ca-file and --token-file", kind=kinds.URL)] = ""
    ca_file: Annotated[
        str, Setting(help="CA certificates of --server", kind=kinds.PEM_NAME, default="the system's")
    ] = ""
    token_file: Annotated[str, Setting(help="file with a bearer token, read again once a minute", kind=kinds.FILE)] = ""


class Process(Connection, frozen=True, kw_only=True):
    """Of everything that runs until it is stopped."""

    log_level: Annotated[str, Setting(help="minimum log level", kind=kinds.choice(_LEVELS))] = "info"
    log_format: Annotated[
        str,
        Setting(
            help="format of log lines; auto: text on a terminal, else JSON",
            kind=kinds.choice(("auto", "json", "text")),
        ),
    ] = "auto"


class Component(Process, frozen=True, kw_only=True):
    """Of all components."""

    config: Annotated[
        str,
        Setting(
            help="file of settings, as YAML or JSON",
            kind=kinds.FILE,
            in_file=False,
        ),
    ] = ""
    metrics_bind_address: Annotated[
        Address | None,
        Setting(help="serve /metrics there, without authentication", kind=kinds.ADDRESS, default="nowhere"),
    ] = None
    # The same for all components, or traces have holes (docs/tracing.md).
    traces_endpoint: Annotated[
        str,
        Setting(
            help="send traces there, by OTLP over HTTP; path /v1/traces",
            kind=kinds.COLLECTOR,
            default="none: nothing is traced",
        ),
    ] = ""
    traces_ratio: Annotated[int, Setting(help="part of all pods that is traced", kind=kinds.RATIO)] = 10_000_000
    traces_headers_file: Annotated[
        str,
        Setting(help="headers for the collector, lines of NAME: VALUE", kind=kinds.FILE),
    ] = ""
    traces_ca_file: Annotated[
        str, Setting(help="CA certificates of the collector", kind=kinds.PEM_NAME, default="certifi's")
    ] = ""


class Replica(Component, frozen=True, kw_only=True):
    """Of components whose replicas elect a leader (lease.py) and tell kubelet their health (runtime/health.py)."""

    no_leader_election: Annotated[
        bool, Setting(help="work without leader election, as a single replica", kind=kinds.SWITCH)
    ] = False
    lease_duration_s: Annotated[
        int,
        Setting(
            help="seconds after the last renewal until others take over",
            kind=kinds.whole("S", least=1, most=_LONGEST_LEASE_S),
        ),
    ] = _LEASE.duration_s
    lease_renew_deadline_s: Annotated[
        float,
        Setting(
            help="a leader stops after this time without a renewal",
            kind=kinds.seconds(above=True, most_s=_LONGEST_LEASE_S),
        ),
    ] = _LEASE.renew_deadline_s
    lease_renew_s: Annotated[
        float,
        Setting(help="time between renewals of the lease", kind=kinds.seconds(above=True, most_s=_LONGEST_LEASE_S)),
    ] = _LEASE.retry_s
    lease_poll_s: Annotated[
        float,
        Setting(help="time between looks at another's lease", kind=kinds.seconds(above=True, most_s=_LONGEST_LEASE_S)),
    ] = _LEASE.poll_s
    health_probe_bind_address: Annotated[
        Address | None, Setting(help="answer /healthz and /readyz there", kind=kinds.ADDRESS, default="nowhere")
    ] = None
    if_kai_starts: Annotated[
        IfKaiStarts,
        Setting(
            help="when a KAI Scheduler starts: stop until it is gone, or log",
            kind=kinds.member(IfKaiStarts),
        ),
    ] = IfKaiStarts.STOP
    # The same for all components that tell containers their devices (docs/cdi.md).
    cdi_enabled: Annotated[
        Cdi,
        Setting(
            help="CDI names of devices; auto: as NVIDIA's ClusterPolicy says",
            kind=kinds.CDI,
        ),
    ] = Cdi.AUTO
