"""How much of a resource a pod needs at once, as kubelet and kube-scheduler count it (KEP-753)."""

from __future__ import annotations

from collections.abc import Iterable


def effective(regular: Iterable[int], init: Iterable[tuple[int, bool]]) -> int:
    """Return the most that is in use at one time.

    ``regular`` containers run together. ``init`` containers run one after the other, in their order, before them; each
    is given as (amount, whether it is a sidecar), and a sidecar goes on running beside all that starts after it.
    """
    sidecars = peak = 0
    for amount, is_sidecar in init:
        peak = max(peak, sidecars + amount)
        if is_sidecar:
            sidecars += amount
    return max(peak, sidecars + sum(regular))
