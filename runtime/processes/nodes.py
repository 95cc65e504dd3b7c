"""The process of ``moorage nodes``: simulated nodes on a real API server until told to stop."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import anyio
import msgspec

from kube.client import errors
from kube.client.api import Api
from kube.client.clock import SystemClock
from kube.client.config import Credentials
from kube.client.http import HttpTransport
from kube.client.retry import Retry
from kube.client.transport import Transport
from runtime import connections, process
from runtime.settings.common import Connection
from runtime.text import BadInput, refuse
from simulator.nodes import shape
from simulator.nodes.api_access import PodTokens
from simulator.nodes.device_manager import BadCheckpoint, Checkpoints
from simulator.nodes.ground_truth import Recording
from simulator.nodes.node_set import NodeSet, NotSimulated
from simulator.nodes.shape import KubeletSettings

#: As kubelet: well within the 40 s after which the node life-cycle controller gives a node up.
_SETTINGS: Final = KubeletSettings(lease_period_s=10.0)
_REMOVE_WITHIN_S: Final = 30.0


def shapes(arguments: argparse.Namespace) -> tuple[shape.NodeShape, ...]:
    """Return the nodes that a command line asks for. Raises BadInput."""
    try:
        parsed = shape.parse(arguments.nodes)
    except shape.MalformedShape as error:
        raise BadInput(f"--nodes: {error}") from error
    return tuple(
        msgspec.structs.replace(one, name=f"{arguments.prefix}-{i}", tainted=not arguments.no_taint)
        for i, one in enumerate(parsed)
    )


async def run_nodes(where: Connection, arguments: argparse.Namespace, stop: anyio.Event) -> None:
    """Play the nodes; at the end take them away, unless told to keep them."""
    credentials = await connections.credentials(where)
    async with (
        HttpTransport(credentials, user_agent="moorage-nodes") as transport,
        HttpTransport(_anonymous(credentials), user_agent="moorage-reservation") as inside,
    ):
        tokens = PodTokens(api=Api(transport, retry=Retry(process.rng())), under=inside.under)
        nodes = _node_set(arguments, transport, tokens)
        try:
            with _recorded(nodes, arguments.record):
                await _play(nodes, stop)
        except ExceptionGroup as failed:
            refuse(failed, (NotSimulated, errors.ApiError))
        finally:
            if not arguments.keep:
                with anyio.move_on_after(_REMOVE_WITHIN_S):
                    await nodes.remove()


def _node_set(arguments: argparse.Namespace, transport: Transport, tokens: PodTokens) -> NodeSet:
    try:
        return NodeSet(
            transport,
            arguments.shapes,
            clock=SystemClock(),
            seed=arguments.seed,
            reservation_identity=tokens,
            settings=_SETTINGS,
            checkpoints=Checkpoints(arguments.state) if arguments.state else None,
        )
    except BadCheckpoint as error:
        raise BadInput(f"--state: {error}") from error


@contextlib.contextmanager
def _recorded(nodes: NodeSet, path: Path | None) -> Iterator[None]:
    """Keep what happens on the nodes in a file, if one is named."""
    if path is None:
        yield
        return
    with Recording(path) as recording:
        nodes.ground_truth.listeners.append(recording)
        yield


async def _play(nodes: NodeSet, stop: anyio.Event) -> None:
    async with anyio.create_task_group() as tasks:
        await tasks.start(nodes.run)
        first, *_, last = [*nodes.kubelets, *nodes.kubelets]
        print(f"{len(nodes.kubelets)} simulated nodes are ready: {first} to {last}", flush=True)
        await stop.wait()
        tasks.cancel_scope.cancel()


def _anonymous(credentials: Credentials) -> Credentials:
    """Return how to reach the same server as nobody: the processes in pods show their own tokens."""
    return msgspec.structs.replace(
        credentials,
        client_cert_file="",
        client_key_file="",
        client_cert_data=b"",
        client_key_data=b"",
        headers=(),
        authorization=None,
    )
