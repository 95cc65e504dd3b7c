"""Idle shares beside a group that waits: who holds some of a GPU and uses next to none of it. Never a reason to evict.

By reports of agents that work now (gpu/nodeuse.py), so without agents there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from cli.explaining.views import HolderView
from cli.inspection.telling import gpus_up
from cli.inspection.uses import clock
from gpu.nodeuse import NodeUse, idle_nano_seconds, is_idle
from gpu.reservation import Reservation

#: Idle shares that are named, those that cost most first. A longer list would hide the rest of the answer.
MOST: Final = 10
#: Of its memory and of its multiprocessors (nodeagent/core/using.py).
_AT_MOST: Final = "5%"


def idle_holders(
    held: Iterable[Reservation], use_on: Callable[[str], NodeUse | None], *, now_ns: int, namespace: str = ""
) -> tuple[HolderView, ...]:
    """Return those of one namespace, "" for all; those that have cost most come first."""
    found: list[tuple[int, HolderView]] = []
    for each in held:
        use = use_on(each.node) if each.book is not None and each.uuid else None
        if use is None or each.book is None:
            continue
        for uid, entry in each.book.entries.items():
            one = use.tenants.get((uid, each.uuid))
            where, _, name = entry.pod.partition("/")
            if one is None or not is_idle(use, one) or namespace not in {"", where}:
                continue
            message = (
                f"{entry.pod} holds {gpus_up(entry.nano)} of a GPU on node {each.node}, "
                f"and has used {_AT_MOST} of it at most since {clock(one.idle_since, now_ns)}"
            )
            view = HolderView(
                namespace=where,
                name=name,
                node=each.node,
                gpu_nano=entry.nano,
                idle_since=one.idle_since,
                message=message,
            )
            found.append((-idle_nano_seconds(entry.nano, one.idle_since, now_ns), view))
    found.sort(key=lambda pair: (pair[0], pair[1].namespace, pair[1].name, pair[1].node))
    return tuple(view for _, view in found[:MOST])
