"""The process of ``moorage admission``."""

from __future__ import annotations

import argparse
import socket

import anyio

from admission.run import run as serve_admission
from admission.server import Endpoint
from admission.settings import Guard, HandOver, Settings
from cli import connections
from kube.api import Api
from kube.lease import incarnation
from kube.retry import Retry


def settings(arguments: argparse.Namespace) -> Settings:
    """Return what a command line says of the webhooks."""
    return Settings(
        hand_over=HandOver(arguments.hand_over),
        sharing=arguments.gpu_sharing_enabled,
        guard=Guard(arguments.visible_devices_guard),
        gpu_resources=tuple(arguments.gpu_resource),
    )


async def run(arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Serve the webhooks."""
    rng = connections.rng()
    endpoint = Endpoint(certificate=arguments.certificate, key=arguments.key, host=arguments.host, port=arguments.port)
    replica = incarnation(socket.gethostname(), rng)
    async with connections.transport(arguments, "admission", replica=replica) as transport:
        await serve_admission(
            Api(transport, retry=Retry(rng)),
            settings=settings(arguments),
            endpoint=endpoint,
            rng=rng,
            stop=stop,
        )
