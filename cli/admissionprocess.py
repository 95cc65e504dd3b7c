"""The process of ``moorage admission``."""

from __future__ import annotations

import argparse
import socket

import anyio
import msgspec

from admission.adopt import ORIGINS
from admission.run import run as serve_admission
from admission.server import Endpoint
from admission.settings import Choices, Guard, HandOver, Settings
from cli import connections, dialectfile
from kube.api import Api
from kube.lease import incarnation
from kube.retry import Retry


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


async def run(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Serve the webhooks."""
    chosen = settings(arguments)
    rng = connections.rng()
    endpoint = Endpoint(certificate=arguments.certificate, key=arguments.key, host=arguments.host, port=arguments.port)
    replica = incarnation(socket.gethostname(), rng)
    async with connections.transport(arguments, "admission", replica=replica) as transport:
        await serve_admission(
            Api(transport, retry=Retry(rng)),
            settings=chosen,
            endpoint=endpoint,
            rng=rng,
            stop=stop,
        )
