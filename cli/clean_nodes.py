"""``moorage admin clean-nodes``: remove what device plugins of other systems have left in the status of nodes.

Each left-over resource is judged on its node and the pods bound there.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import anyio
import msgspec

from cli.checks.nodes import Offer, foreign_offers
from cli.checks.reader import CantLook, Raw, Reader, some_of
from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import NODES
from kube.client.retry import TRIES
from kube.client.transport import Transport
from runtime import text
from runtime.client import reached
from runtime.options import connection, output
from runtime.options.output import FOR_PROGRAMS
from runtime.output import Progress, write
from runtime.text import BadInput
from wire import names

_DESCRIPTION: Final = (
    "Find resources of other systems (aliyun.com/gpu-mem, nvidia.com/gpumem, volcano.sh/vgpu-number...) that kubelet "
    "keeps at 0 in the status of nodes after their device plugin has gone, and say which can be removed. Changes "
    "nothing without --yes. What is offered, or asked for by a pod that is bound there, stays. Exit code 0: nothing is "
    "left that could not be removed; 1: something is; 2: bad input."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = _DESCRIPTION
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="look at these nodes only")
    parser.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME",
        help="a resource of another system under a name of your own, such as example.com/shared; may be repeated",
    )
    parser.add_argument("--yes", action="store_true", help="remove them; needs the right to patch nodes/status")
    parser.add_argument(
        "--settle",
        default="15s",
        metavar="DURATION",
        help="look again after so long whether a kubelet has put something back (default: 15s)",
    )
    output.add(parser, (output.TABLE, output.JSON, output.YAML), has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_clean)


def _clean(arguments: argparse.Namespace) -> int:
    for resource in arguments.resource:
        _refuse_ours(resource)
    try:
        arguments.settle_s = text.seconds(arguments.settle)
    except ValueError as error:
        raise BadInput(f"--settle: {error}") from error
    return anyio.run(functools.partial(run, arguments))


def _refuse_ours(resource: str) -> None:
    is_own = resource == names.GPU_RESOURCE or resource.startswith(names.MIG_RESOURCE_PREFIX)
    if is_own or not all(resource.partition("/")[::2]):
        raise BadInput(
            f"--resource: {resource!r} is not an extended resource of another system: a domain and a name, such as "
            f"example.com/shared, other than {names.GPU_RESOURCE} and {names.MIG_RESOURCE_PREFIX}*"
        )


class Verdict(msgspec.Struct, frozen=True):
    """Of one resource of a node. ``stays`` says why it is not removed, and is "" where it can be."""

    offer: Offer
    stays: str = ""


def judge(node: Raw, pods: Sequence[Raw], *, also: Collection[str] = ()) -> list[Verdict]:
    """Judge all foreign resources of a node; ``pods`` are those that are bound to it."""
    return [Verdict(offer, _why_it_stays(offer, pods)) for offer in foreign_offers(node, also=also)]


def removal(node: Raw, offers: Sequence[Offer]) -> list[dict[str, Any]]:
    """Return a JSON patch of a node's status that removes them if it is the same node still, and they are as read."""
    patch: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/uid", "value": node["metadata"]["uid"]}]
    for offer in offers:
        for part, amount in (("capacity", offer.capacity), ("allocatable", offer.allocatable)):
            if amount is not None:
                path = f"/status/{part}/{_escaped(offer.resource)}"
                patch += [{"op": "test", "path": path, "value": amount}, {"op": "remove", "path": path}]
    return patch


def _why_it_stays(offer: Offer, pods: Sequence[Raw]) -> str:
    if not offer.is_left_over:
        return f"it is offered (capacity {offer.capacity or 0}, allocatable {offer.allocatable or 0})"
    askers = sorted(_name(pod) for pod in pods if offer.resource in set(_asked(pod)))
    return f"asked for by {some_of(askers)}" if askers else ""


def _asked(pod: Raw) -> Iterator[str]:
    """Names of all resources that a pod asks for that has not ended."""
    if (pod.get("status") or {}).get("phase") in names.ENDED_PHASES:
        return
    spec = pod["spec"]
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        resources = container.get("resources") or {}
        yield from resources.get("limits") or ()
        yield from resources.get("requests") or ()


def _name(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _escaped(key: str) -> str:
    """Return a key as JSON pointers write it (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


_NODES: Final = "/api/v1/nodes"
_PODS: Final = "/api/v1/pods"
_REMEMBERED: Final = "kubelet knows a device plugin for five minutes more, from its own start on, too; try again then"


class Cleaner:
    """Removes what is left over, or says what it would remove; ``also``: further resources of other systems."""

    def __init__(
        self, transport: Transport, api: Api, *, also: Collection[str] = (), tell: Callable[[str], None]
    ) -> None:
        self._reader = Reader(transport)
        self._api = api
        self._also = also
        self._tell = tell
        #: Node -> what was removed from it.
        self._removed: dict[str, list[str]] = {}
        self._found = 0
        self._stayed = 0
        #: Node and resource -> what became of it, and why.
        self._ends: dict[tuple[str, str], tuple[str, str]] = {}

    async def clean(self, wanted: Collection[str], *, is_meant: bool, settle_s: float) -> int:
        """Go through the nodes (none named: all) and return the exit code. Raises CantLook, BadInput."""
        listed = {str(node["metadata"]["name"]): node for node in await self._reader.items(_NODES)}
        if unknown := sorted(set(wanted) - listed.keys()):
            raise BadInput(f"node {unknown[0]!r} is not there")
        for name in wanted or listed:
            if foreign_offers(listed[name], also=self._also):
                await self._clean_node(name, is_meant=is_meant)
        came_back = await self._look_again(settle_s) if self._removed else 0
        self._sum_up(came_back, is_meant=is_meant)
        return 1 if self._stayed or came_back else 0

    async def _clean_node(self, name: str, *, is_meant: bool) -> None:
        """Judge a node as it is now, and remove what can be removed in one write that names its version."""
        node = await self._reader.get(f"{_NODES}/{name}")
        if node is None:
            return  # it went meanwhile
        pods = await self._reader.items(_PODS, fields=f"spec.nodeName={name}")
        offers: list[Offer] = []
        for verdict in judge(node, pods, also=self._also):
            if verdict.stays:
                self._stayed += 1
                self._note(name, verdict.offer.resource, "stays", verdict.stays)
            else:
                offers.append(verdict.offer)
        self._found += len(offers)
        if not is_meant:
            for offer in offers:
                self._note(name, offer.resource, "would be removed")
        elif offers:
            await self._remove(node, offers)

    async def _remove(self, node: Raw, offers: list[Offer]) -> None:
        name = node["metadata"]["name"]
        resources = [offer.resource for offer in offers]
        try:
            await self._api.patch(NODES, name, removal(node, offers), subresource="status")
        except ApiError as error:
            self._stayed += len(offers)
            for resource in resources:
                self._note(name, resource, "not removed", str(error))
            return
        self._removed[name] = resources
        for resource in resources:
            self._note(name, resource, "removed")

    async def _look_again(self, settle_s: float) -> int:
        """Return how many a kubelet has put back."""
        await anyio.sleep(settle_s)
        came_back = 0
        for name, removed in self._removed.items():
            node = await self._reader.get(f"{_NODES}/{name}") or {}
            back = [offer.resource for offer in foreign_offers(node, also=self._also) if offer.resource in removed]
            came_back += len(back)
            for resource in back:
                self._note(name, resource, "is back", _REMEMBERED)
        return came_back

    def _note(self, node: str, resource: str, outcome: str, why: str = "") -> None:
        self._ends[node, resource] = (outcome, why)
        self._tell(f"{node}: {resource} {outcome}{why and f': {why}'}")

    def for_programs(self) -> list[dict[str, str]]:
        """Each resource that was looked at, in the order of the nodes, with what became of it."""
        return [
            {"node": node, "resource": resource, "outcome": outcome, "why": why}
            for (node, resource), (outcome, why) in self._ends.items()
        ]

    def _sum_up(self, came_back: int, *, is_meant: bool) -> None:
        if is_meant:
            gone = sum(map(len, self._removed.values())) - came_back
            self._tell(f"{gone} removed, {self._stayed + came_back} left")
        elif self._found:
            self._tell(f"{self._found} would be removed, {self._stayed} would stay; nothing was changed: add --yes")
        else:
            self._tell(f"nothing to remove, {self._stayed} would stay")


def _silent(_line: str) -> None:
    """Programs read the whole at the end."""


async def run(arguments: argparse.Namespace) -> int:
    """Look, clean and return the exit code. Raises BadInput."""
    try:
        async with reached(arguments, "clean-nodes") as cluster:
            api = cluster.api(tries=TRIES)
            are_lines = arguments.output not in FOR_PROGRAMS
            cleaner = Cleaner(cluster.transport, api, also=arguments.resource, tell=print if are_lines else _silent)
            with Progress("looking at the nodes").waiting():
                code = await cleaner.clean(arguments.nodes, is_meant=arguments.yes, settle_s=arguments.settle_s)
            if not are_lines:
                write(cleaner.for_programs(), arguments.output)
            return code
    except CantLook as error:
        raise BadInput(str(error)) from error
