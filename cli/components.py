"""The components as sub-commands: ``moorage scheduler``, ``moorage binder``, ``moorage admission``.

Each talks to the API server under its own identity: the pod's service account, a kubeconfig, or an address with a
token file (``--server``, ``--ca-file``, ``--token-file``). Each has a module for its process, imported when called: so
none has in memory what only another one needs (NumPy is 14 MiB).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import logging
import sys
from pathlib import Path
from typing import Any

import anyio

from admission.adopt import ORIGINS
from admission.settings import Choices, Guard, HandOver, Settings
from binder.core.reservation_pod import ReservationTemplate
from binder.settings import BinderSettings
from cli import dialectfile, durations
from cli.inspect import UNITS_MIB
from cli.refusing import BadInput, refuse
from gpu.cdi import Cdi
from kube.config import ConfigError
from kube.lease import LeaseSettings
from scheduler.core.settings import Strategy
from scheduler.settings import ScalingSettings, SchedulerSettings
from wire import names
from wire.quantity import NANO, MalformedQuantity, parse_nano

_Commands = Any  # argparse keeps the type of sub-commands private

_ON = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_OFF = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def add_commands(commands: _Commands) -> None:
    """Add the components' sub-commands."""
    _add_scheduler(commands)
    _add_binder(commands)
    _add_admission(commands)


def _add_scheduler(commands: _Commands) -> None:
    scheduler = _component(commands, "scheduler", "decide where pods go")
    _add_election(scheduler)
    _add_health(scheduler)
    for resource in ("gpu", "cpu"):
        scheduler.add_argument(
            f"--{resource}-strategy", choices=[s.value for s in Strategy], default=Strategy.BINPACK.value
        )
    scheduler.add_argument(
        "--default-staleness-grace-period",
        type=_duration,
        default=SchedulerSettings().broken_gang_s,
        metavar="DURATION",
        help="what is left of a gang below its minimum is evicted after this time (default: 60s)",
    )
    _add_cdi(scheduler)
    _add_enforcement(scheduler)
    _add_autoscaling(scheduler)
    _add_inspecting(scheduler)


def _add_binder(commands: _Commands) -> None:
    binder = _component(commands, "binder", "reserve devices and bind")
    _add_election(binder)
    _add_health(binder)
    _add_cdi(binder)
    binder.add_argument("--reservation-image", default=ReservationTemplate().image)
    binder.add_argument("--reservation-runtime-class", default="", help="runtime class of reservation pods")
    binder.add_argument(
        "--reservation-priority-class",
        default="",
        help="priority class of reservation pods: moorage-reservation, where reservation/priorityclass.yaml is applied",
    )
    binder.add_argument(
        "--idle-s", type=_seconds, default=BinderSettings().idle_s, help="keep an idle reservation so long"
    )
    binder.add_argument(
        "--contended-s",
        type=_seconds,
        default=BinderSettings().contended_s,
        help="tenants of a GPU that is unhealthy, or somebody else's, are evicted when that was seen for so long",
    )


def _add_admission(commands: _Commands) -> None:
    admission = _component(commands, "admission", "serve the webhooks")
    admission.add_argument("--port", type=int, default=9443)
    admission.add_argument("--host", default="0.0.0.0")  # noqa: S104 - a webhook is reached by the pod's address
    _add_certificates(admission)
    admission.add_argument(
        "--gpu-fraction-runtime-class-name",
        default=Settings().runtime_class,
        metavar="NAME",
        help="runtime class of pods with shares that name none; empty: they get none (default: %(default)s)",
    )
    admission.add_argument("--hand-over", choices=[h.value for h in HandOver], default=HandOver.ANNOTATIONS.value)
    admission.add_argument(
        "--visible-devices-guard",
        choices=[guard.value for guard in Guard],
        default=Choices().guard.value,
        help=f"what becomes of {names.ENV_VISIBLE_DEVICES} where nobody was given a share, unless the namespace says "
        f"otherwise by its label {names.VISIBLE_DEVICES_GUARD} (default: {Choices().guard.value})",
    )
    admission.add_argument(
        "--gpu-resource",
        action="append",
        default=[],
        metavar="NAME",
        help="a resource by which NVIDIA's device plugin gives GPUs under another name than nvidia.com/gpu and "
        "nvidia.com/mig-*, such as nvidia.com/gpu.shared; may be given several times",
    )
    admission.add_argument(
        "--gpu-sharing-enabled",
        type=_switch,
        nargs="?",
        const=True,
        default=True,
        metavar="BOOL",
        help="false: pods that ask for a share of a GPU are refused (default: true)",
    )
    dialectfile.add_option(admission)
    admission.add_argument(
        "--adopt-from",
        action="append",
        default=[],
        metavar="SCHEDULER",
        help=f"a scheduler whose pods become Moorage's where they ask for GPUs and their namespace has the label "
        f"{names.ADOPT}=true; may be given several times (default: {', '.join(ORIGINS)})",
    )


def _add_certificates(admission: argparse.ArgumentParser) -> None:
    """Add where the certificate of the webhooks comes from (docs/certificates.md): one of two ways."""
    admission.add_argument(
        "--certificate", type=Path, metavar="PEM", help="a file that somebody else renews, as cert-manager does"
    )
    admission.add_argument("--key", type=Path, metavar="PEM", help="its private key")
    admission.add_argument(
        "--self-made-certificates",
        action="store_true",
        help=f"instead of these files: make certificates, keep them in the Secret {names.CERTIFICATES_SECRET}, renew "
        "them, and write their CA into the webhook configurations",
    )
    admission.add_argument(
        "--certificate-name",
        action="append",
        default=[],
        metavar="NAME",
        help="DNS name or IP address by which the API server calls the webhooks; may be given several times (default: "
        f"moorage-admission.{names.SYSTEM_NAMESPACE}.svc)",
    )
    admission.add_argument(
        "--certificate-lifetime",
        type=_lifetime,
        default=None,
        metavar="DURATION",
        help="of self-made certificates; a new one is made after two thirds of it (default: 8760h, a year)",
    )


def _lifetime(text: str) -> float:
    """Read how long a certificate lives, in seconds. Raises ArgumentTypeError."""
    value = _seconds(text)
    if value < 60:
        raise argparse.ArgumentTypeError(f"{text!r} is too short for a certificate; allowed: at least 1m")
    return value


def _add_cdi(parser: argparse.ArgumentParser) -> None:
    """Add how containers are told their devices (docs/cdi.md), the same for all components that tell them."""
    parser.add_argument(
        "--cdi-enabled",
        type=_cdi,
        nargs="?",
        const=Cdi.ON,
        default=Cdi.AUTO,
        metavar="auto|BOOL",
        help="name the devices of shares as CDI does; auto: where NVIDIA's ClusterPolicy has CDI on (default: auto)",
    )


def _add_enforcement(scheduler: argparse.ArgumentParser) -> None:
    """Add what becomes of pods that wish what a node may be unable to enforce (docs/enforcement.md)."""
    scheduler.add_argument(
        "--require-enforcement",
        type=_switch,
        nargs="?",
        const=True,
        default=False,
        metavar="BOOL",
        help=f"pods that wish caps or a mode wait for nodes that enforce them (node annotation {names.NODE_ENFORCES}), "
        f"not only pods with annotation {names.REQUIRE_ENFORCEMENT} (default: false)",
    )


def _add_autoscaling(scheduler: argparse.ArgumentParser) -> None:
    """Add the options of autoscaling, by the names that KAI has for them."""
    default = ScalingSettings()
    scheduler.add_argument(
        "--cluster-autoscaling",
        type=_switch,
        nargs="?",
        const=True,
        default=False,
        metavar="BOOL",
        help=f"ask autoscalers for nodes by pods in {default.namespace}, where shares of GPUs fit nowhere "
        "(default: false)",
    )
    scheduler.add_argument(
        "--scaling-pod-image", default=default.image, metavar="IMAGE", help="of those pods (default: %(default)s)"
    )
    scheduler.add_argument(
        "--gpu-memory-to-fraction-ratio",
        type=_ratio,
        default=default.memory_nano,
        metavar="RATIO",
        help="what a gpu-memory ask takes of a GPU while no node tells how much one has (default: 0.1)",
    )


def _add_inspecting(scheduler: argparse.ArgumentParser) -> None:
    scheduler.add_argument(
        "--inspect-address",
        type=_address,
        default=None,
        metavar="HOST:PORT",
        help="serve the inspect API of Aliyun's gpushare there, to anybody who reaches it: nodes, GPUs, and names and "
        "shares of the pods on them (default: nowhere)",
    )
    scheduler.add_argument(
        "--inspect-memory-unit", choices=tuple(UNITS_MIB), default="GiB", help="what it counts in (default: GiB)"
    )


def _address(text: str) -> tuple[str, int]:
    """Read where to listen; without a host on all IPv4 addresses. Raises ArgumentTypeError."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not is_bracketed) or not port.isascii() or not port.isdigit() or len(port) > 5:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, as in 127.0.0.1:12345, [::1]:12345, :12345")
    if not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r}: a port is a number from 1 to 65535")
    return host.strip("[]"), int(port)


def _ratio(text: str) -> int:
    """Read a part of a device, in nano-GPU. Raises ArgumentTypeError."""
    try:
        nano = parse_nano(text)
    except MalformedQuantity:
        nano = 0
    if not 0 < nano <= NANO:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and at most 1, as in 0.1")
    return nano


def _cdi(text: str) -> Cdi:
    """Read a switch that may be left to the cluster. Raises ArgumentTypeError."""
    if text == Cdi.AUTO.value:
        return Cdi.AUTO
    if text not in _ON | _OFF:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor true nor false")
    return Cdi.ON if text in _ON else Cdi.OFF


def _switch(text: str) -> bool:
    """Read a switch as KAI's components do (Go's strconv.ParseBool). Raises ArgumentTypeError."""
    if text not in _ON | _OFF:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return text in _ON


def _seconds(text: str) -> float:
    """Read a duration, in seconds. Raises ArgumentTypeError."""
    try:
        return durations.seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _duration(text: str) -> float:
    """Read a duration above zero, in seconds. Raises ArgumentTypeError."""
    value = _seconds(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time at all; allowed: {durations.ALLOWED}, above zero")
    return value


def _add_health(parser: argparse.ArgumentParser) -> None:
    """Add where kubelet asks for a replica's health (cli/health.py), by KAI's name."""
    parser.add_argument(
        "--health-probe-bind-address",
        type=_address,
        default=None,
        metavar="HOST:PORT",
        help="answer /healthz and /readyz there (default: nowhere)",
    )


def _add_election(parser: argparse.ArgumentParser) -> None:
    """Add the options of the leader election (kube/lease.py), the same for all components that have one."""
    default, seconds = LeaseSettings(), "S"
    parser.add_argument("--no-leader-election", action="store_true", help="for a single replica")
    parser.add_argument(
        "--lease-duration-s", type=int, default=default.duration_s, metavar=seconds, help="replicas wait so long"
    )
    parser.add_argument(
        "--lease-renew-deadline-s",
        type=float,
        default=default.renew_deadline_s,
        metavar=seconds,
        help="a leader that could not renew its lease for so long stops working",
    )
    parser.add_argument(
        "--lease-renew-s", type=float, default=default.retry_s, metavar=seconds, help="between renewals"
    )
    parser.add_argument(
        "--lease-poll-s", type=float, default=default.poll_s, metavar=seconds, help="between looks at another's lease"
    )


def _component(
    commands: _Commands,
    name: str,
    what: str,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=f"Moorage's {name}: {what}.")
    parser.set_defaults(run=functools.partial(_start, name))
    add_connection(parser)
    return parser


def add_connection(parser: argparse.ArgumentParser, *, without: str = "the pod's service account") -> None:
    """Add the options that say where the API server is and who we are there (cli/connections.py).

    ``without``: what holds where none of them is given.
    """
    parser.add_argument("--kubeconfig", default="", metavar="FILE", help=f"default: {without}")
    parser.add_argument("--context", default="", help="context of the kubeconfig")
    parser.add_argument("--server", default="", metavar="URL", help="API server, with --ca-file and --token-file")
    parser.add_argument("--ca-file", default="", metavar="PEM")
    parser.add_argument("--token-file", default="", metavar="FILE")
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])


def _start(name: str, arguments: argparse.Namespace) -> int:
    """Import what the component needs, and run it until it ends or a signal says stop."""
    process = importlib.import_module(f"cli.{name}process")
    start(process.run, arguments)
    return 0


def start(run: Any, arguments: argparse.Namespace) -> None:
    """Run a process (cli.connections.Run) until it ends or a signal says stop, with its log on stderr.

    Raises BadInput when it can't be told where the API server is, and where the process itself does.
    """
    connections = importlib.import_module("cli.connections")
    logging.basicConfig(
        force=True,
        level=arguments.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    try:
        anyio.run(connections.until_told, run, arguments)
    except ExceptionGroup as failed:
        refuse(failed, (BadInput, ConfigError))
