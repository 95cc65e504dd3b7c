"""The process of ``moorage admission``."""

from __future__ import annotations

import argparse
import socket

import anyio
import msgspec

from admission.adopt import ORIGINS
from admission.certificates.rotation import Rotation, SelfMade
from admission.certificates.tls import Files, FilesShown, Shown
from admission.run import run as serve_admission
from admission.server import Endpoint
from admission.settings import Choices, Guard, HandOver, Settings
from cli import connections, dialectfile
from cli.refusing import BadInput
from kube.api import Api
from kube.clock import SystemClock
from kube.lease import incarnation
from kube.retry import Retry
from kube.serverclock import ServerClock


def settings(arguments: argparse.Namespace) -> Settings:
    """Return what a command line says of the webhooks. Raises BadInput for a file of dialects that can't be."""
    dialects = dialectfile.read(arguments.dialects)
    sharing = dialects.sharing and arguments.gpu_sharing_enabled
    return Settings(
        hand_over=HandOver(arguments.hand_over),
        runtime_class=arguments.gpu_fraction_runtime_class_name,
        choices=Choices(
            guard=Guard(arguments.visible_devices_guard),
            dialects=msgspec.structs.replace(dialects, sharing=sharing),
        ),
        gpu_resources=tuple(arguments.gpu_resource),
        origins=tuple(arguments.adopt_from) or ORIGINS,
    )


def certificates(arguments: argparse.Namespace) -> Files | SelfMade:
    """Return which certificates a command line chooses. Raises BadInput unless it is one way of the two."""
    files = (arguments.certificate, arguments.key)
    ways = "allowed: either --self-made-certificates, or --certificate and --key"
    if arguments.self_made_certificates:
        if any(files):
            raise BadInput(f"certificates are self-made, and read from files as well; {ways}")
        names = frozenset(arguments.certificate_name) or SelfMade().names
        return SelfMade(names=names, lifetime_s=int(arguments.certificate_lifetime or SelfMade().lifetime_s))
    if arguments.certificate_name or arguments.certificate_lifetime:
        raise BadInput(
            "--certificate-name and --certificate-lifetime are of --self-made-certificates, which is not given"
        )
    if not all(files):
        missing = " and ".join(f for f, path in zip(("--certificate", "--key"), files, strict=True) if not path)
        raise BadInput(f"no certificate for the webhooks: {missing} not given; {ways}")
    return Files(certificate=arguments.certificate, key=arguments.key)


async def run(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Serve the webhooks."""
    chosen = settings(arguments)
    source = certificates(arguments)
    rng = connections.rng()
    endpoint = Endpoint(host=arguments.host, port=arguments.port)
    replica = incarnation(socket.gethostname(), rng)
    async with connections.transport(arguments, "admission", replica=replica) as transport:
        clock = ServerClock(transport, fallback=SystemClock())
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
        )
