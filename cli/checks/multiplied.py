"""Nodes whose device plugin offers each GPU several times: no shares of ours go there (gpu/multiplied.py)."""

from __future__ import annotations

from typing import Final

import msgspec

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Raw, Reader
from gpu.multiplied import multiplied
from scheduler.core.convert.nodes import offered_gpus
from wire.core import Node

_CHECK: Final = "node GPUs"
_DO: Final = (
    "no share is placed there, and who asks for a whole GPU may get a part of one: give the device plugin a "
    "configuration without sharing, or keep Moorage's pods off by a taint (docs/migrating)"
)


async def check_multiplied(reader: Reader) -> list[Finding]:
    """Every node offers each of its GPUs once."""
    nodes = await reader.items("/api/v1/nodes")
    found: dict[str, list[str]] = {}
    for node in nodes:
        if said := _multiplied(node):
            found.setdefault(said, []).append(str(node["metadata"]["name"]))
    if not found:
        return [Finding(Level.OK, _CHECK, "no node offers a GPU several times")]
    return [
        Finding(Level.WARNING, _CHECK, f"{some_of(names)}: each GPU is offered several times ({said})", _DO)
        for said, names in sorted(found.items())
    ]


def _multiplied(raw: Raw) -> str:
    node = msgspec.convert(raw, Node)
    return multiplied(node.metadata.labels or {}, node.metadata.annotations or {}, offered_gpus(node))
