"""Shares kept for pods that are gone: their node is gone or not ready, so they may run (docs/operate.md)."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import msgspec

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Reader
from gpu import reservation
from gpu.book import Entry
from gpu.reservation import Reservation
from kube.client.api import field_is
from sharing import machines
from wire import names
from wire.core import Node, Pod

_CHECK: Final = "kept shares"
_DO: Final = (
    "nothing where the node comes back: the pods' grace periods begin when it is ready; their shares are given back "
    "an hour after that at the latest (docs/operate.md, a machine that is away)"
)


async def check_vanished(reader: Reader) -> list[Finding]:
    """No share waits for a node that is gone or not ready. Reads pods of such nodes only."""
    silent = await _silent(reader)
    kept: dict[str, list[str]] = {}
    for node, held in silent.items():
        here = {
            str(raw["metadata"]["uid"])
            for raw in await reader.items("/api/v1/pods", fields=field_is("spec.nodeName", node))
        }
        for one in held:
            for uid, entry in (one.book.entries if one.book is not None else {}).items():
                if uid not in here and await _is_gone(reader, uid, entry):
                    kept.setdefault(node, []).append(entry.pod)
    if not kept:
        return [Finding(Level.OK, _CHECK, "no share waits for a node that is gone or not ready")]
    return [
        Finding(
            Level.WARNING,
            _CHECK,
            f"node {node} is gone or not ready: shares are kept of {some_of(sorted(set(pods)))}",
            _DO,
        )
        for node, pods in sorted(kept.items())
    ]


async def _silent(reader: Reader) -> dict[str, list[Reservation]]:
    """Reservations by node, of the nodes that are gone or not ready."""
    nodes = [msgspec.convert(raw, Node) for raw in await reader.items("/api/v1/nodes")]
    heard = {node.metadata.name for node in nodes if machines.registration(node) is not None}
    found: dict[str, list[Reservation]] = {}
    for raw in await reader.items(f"/api/v1/namespaces/{names.RESERVATION_NAMESPACE}/pods"):
        pod = msgspec.convert(raw, Pod)
        if reservation.is_reservation(pod) and pod.spec.node_name not in heard:
            found.setdefault(pod.spec.node_name or "", []).append(reservation.read(pod))
    found.pop("", None)
    return found


async def _is_gone(reader: Reader, uid: str, entry: Entry) -> bool:
    """Whether no pod of this UID is there. One that is not bound yet is not among the pods of the node."""
    namespace, _, name = entry.pod.partition("/")
    if not namespace or not name:
        return False
    raw = await reader.get(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}")
    return raw is None or (raw.get("metadata") or {}).get("uid") != uid
