"""Writes per pod by service account, counted from the API server's audit log, of which a line is one request.

Three waves of pods, each counted when nothing is written any more: whole GPUs, shares on GPUs that nobody uses yet, and
one further share on each of those. Bars (docs/design/protocol.md): 2, 6 and 3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import anyio
import msgspec

from bench import bench_cluster, objects, sharing
from bench.objects import Manifest
from bench.result import Figures, Sizes
from tools.cluster.deployment import SIMULATED_TELLER
from tools.cluster.plane import ControlPlane
from wire import names

#: Requests that can change something, when they are answered. Leases are in the log and counted apart.
POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
"""
_ACCOUNT = "system:serviceaccount:"


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Object(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""


class _Answer(msgspec.Struct, frozen=True):
    code: int = 0


class Write(msgspec.Struct, frozen=True, rename="camel"):
    """One request."""

    verb: str
    user: _User = _User()
    object_ref: _Object = _Object()
    response_status: _Answer = _Answer()

    @property
    def account(self) -> str:
        """``namespace:name`` of the service account; other users as they are."""
        return self.user.username.removeprefix(_ACCOUNT)

    @property
    def what(self) -> str:
        """``create pods/binding``."""
        resource = "/".join(part for part in (self.object_ref.resource, self.object_ref.subresource) if part)
        return f"{self.verb} {resource}"


_decode: Final = msgspec.json.Decoder(Write).decode


class Log:
    """An audit log from a place in it on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_up_to = path.stat().st_size if path.exists() else 0

    def writes(self) -> list[Write]:
        """What was added since it was opened or read last, whole lines only."""
        with self._path.open("rb") as file:
            file.seek(self._read_up_to)
            lines = file.read()
        whole = lines[: lines.rfind(b"\n") + 1]
        self._read_up_to += len(whole)
        return [_decode(line) for line in whole.splitlines()]


def tally(writes: Iterable[Write], accounts: Iterable[str]) -> dict[str, Counter[str]]:
    """Account -> kind of write -> how many, for the accounts that are asked for. Leases are left out.

    A write that was refused is counted as one, and under its code: ``patch pods (409)``.
    """
    counts: dict[str, Counter[str]] = {account: Counter() for account in accounts}
    for write in writes:
        if write.account in counts and write.object_ref.resource != "leases":
            code = write.response_status.code
            counts[write.account][write.what if code < 400 else f"{write.what} ({code})"] += 1
    return counts


_NODES = 40
_WITHIN_S = 120.0
#: The audit log and late tidying: so long nothing may have been written before a wave is counted.
_QUIET_S = 3.0

NOTES = (
    "Every request that could change something counts, events and refused ones included; leases are left out.",
    "Each wave is counted when all of its events are written.",
    "First shares include the reservation process's own patch (a stand-in with its rights makes it).",
    "All pods of a wave are created at once.",
)
_OURS = tuple(f"{names.SYSTEM_NAMESPACE}:moorage-{component}" for component in ("scheduler", "binder", "admission"))
_TELLER = f"{names.RESERVATION_NAMESPACE}:{SIMULATED_TELLER}"


def measure(sizes: Sizes) -> Figures:
    """All waves on one control plane."""
    waves = {
        "whole_gpu": [objects.whole(f"whole-{i:04}") for i in range(sizes.writes_pods)],
        "first_share": [objects.share(f"first-{i:04}", "0.6") for i in range(sizes.writes_shares)],
        "further_share": [objects.share(f"further-{i:04}", "0.4") for i in range(sizes.writes_shares)],
    }
    with ControlPlane(node_lifecycle=False, audit_policy=POLICY) as plane:
        figures = anyio.run(_measure, plane, waves)
    return Figures(
        sizes={"nodes": _NODES, **{name: len(pods) for name, pods in waves.items()}}, notes=NOTES, figures=figures
    )


async def _measure(plane: ControlPlane, waves: dict[str, list[Manifest]]) -> dict[str, object]:
    figures: dict[str, object] = {}
    async with (
        sharing.sharing(plane, nodes=_NODES) as (scene, _, _),
        bench_cluster.observed(scene) as observer,
        bench_cluster.events_watched(scene) as events,
    ):
        log, bound = Log(plane.audit_log_path), 0
        await _quiet(log)
        for name, pods in waves.items():
            bound += len(pods)
            await scene.create(bench_cluster.PODS, pods)
            await observer.bound([pod["metadata"]["name"] for pod in pods], within_s=_WITHIN_S)
            await events.written(bound, within_s=_WITHIN_S)
            counts = await _quiet(log)
            figures[name] = _per_pod(counts, len(pods))
    return figures


async def _quiet(log: Log) -> dict[str, Counter[str]]:
    """Read on until our accounts have written nothing for a while."""
    total = {account: Counter[str]() for account in (*_OURS, _TELLER)}
    with anyio.fail_after(_WITHIN_S):
        while True:
            await anyio.sleep(_QUIET_S)
            more = tally(log.writes(), total)
            if not any(more.values()):
                return total
            for account, counts in more.items():
                total[account] += counts


def _per_pod(counts: dict[str, Counter[str]], pods: int) -> dict[str, object]:
    by_account = {account: counted for account, counted in counts.items() if counted}
    return {
        "writes_per_pod": round(sum(c.total() for c in by_account.values()) / pods, 2),
        "by_account": {account: dict(sorted(counted.items())) for account, counted in by_account.items()},
    }
