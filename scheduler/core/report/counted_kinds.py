"""Which kinds of pods say whether free GPUs are of use: those that wait, and the usual ones once enough are known.

A device that the larger of two kinds can take, the smaller one can take too. So only kinds are kept of which none asks
for less in everything: the answer is the same, and what it costs stays small.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from scheduler.core.model.pod_kind import LEAST_PODS, Kind, asked_kind, most_frequent, usual
from scheduler.core.model.records import PodRecord

#: The most kinds that are looked at, of usual ones and of those that wait: the most frequent.
MOST_LOOKED_AT: Final = 256
#: And the most that are kept, of which none asks for less in everything.
MOST_KEPT: Final = 32


def counted_kinds(came: Mapping[Kind, int], waiting: Mapping[Kind, int], *, arrival: int = 1) -> tuple[Kind, ...]:
    """Return the kinds that count.

    ``came``: pods that came to nodes, each counted ``arrival`` times; of fewer than ``LEAST_PODS`` nothing is usual.
    """
    is_known = sum(came.values()) >= LEAST_PODS * arrival
    kinds = [kind for kind, _ in usual(came)[:MOST_LOOKED_AT]] if is_known else []
    return _least([*kinds, *(kind for kind, _ in islice(most_frequent(waiting), MOST_LOOKED_AT))])


def waiting_kinds(pods: Iterable[PodRecord]) -> Counter[Kind]:
    """Count pods without a node by their kind, of those that may start now; the most frequent classes of them."""
    classes = Counter(pod.cls for pod in pods if not (pod.gated or pod.deleting or pod.is_elsewhere))
    found: Counter[Kind] = Counter()
    for cls, count in classes.most_common(MOST_LOOKED_AT):
        if (kind := asked_kind(cls)) is not None:
            found[kind] += count
    return found


def _least(kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """The kinds of which none asks for less in everything; of too many the first."""
    kept: list[Kind] = []
    for kind in kinds:
        if any(_is_within(other, kind) for other in kept):
            continue
        kept = [other for other in kept if not _is_within(kind, other)]
        if len(kept) < MOST_KEPT:
            kept.append(kind)
    return tuple(kept)


def _is_within(kind: Kind, other: Kind) -> bool:
    """Whether a kind can take every device that the other can take, and wants no more beside it."""
    if kind.is_whole != other.is_whole or (kind.milli == 0) != (other.milli == 0):
        return False
    return (
        kind.devices <= other.devices
        and kind.milli <= other.milli
        and kind.device_mib <= other.device_mib
        and kind.cpu_milli <= other.cpu_milli
        and kind.mem_mib <= other.mem_mib
    )
