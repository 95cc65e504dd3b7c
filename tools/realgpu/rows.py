"""The list: what is tried, what is expected, and how long it may take (docs/design/real-gpu.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from tools.realgpu import events, facts, limits, sampling
from tools.realgpu.outcome import Outcome, not_possible


@dataclass(frozen=True, slots=True)
class Row:
    """``try_it`` runs in a process of its own, which is ended after ``limit_s``."""

    name: str
    expected: str
    try_it: Callable[[], Outcome]
    limit_s: float = 15.0


#: The cheap ones first: what takes long may find no time left.
ROWS: Final = (
    Row("machine", "which limits this machine can have", facts.machine),
    Row("health", "GPUs answer, and tell recovery action and row remapping", facts.health),
    Row("sample", "the process by its own PID, 4096 MiB and a context", sampling.sample, 30),
    Row("namespace", "own PIDs, none, or the host's", sampling.namespace, 30),
    Row("cost", "at most 5 ms of CPU a look", sampling.cost, 60),
    Row("driver-limits", "read back; 9000 refused; of two with 5000 the second refused", limits.driver, 60),
    Row("mps-limits", "5000 refused; two of 3000 pass", limits.mps, 45),
    Row("ending", "ended within 2 s by signal 9, the neighbour lives", limits.ending, 45),
    Row("fault", "XID 31, which does not count; the GPU answers", events.fault, 45),
    Row("run", "half of the GPU by UUID, and 1024 MiB of it", events.share, 40),
    Row("placements", "as NVIDIA documents them", facts.placements),
    Row(
        "runtime-caps",
        "containers are held to NVIDIA_GPU_MEMORY_LIMIT",
        partial(not_possible, "it needs a container runtime with NVIDIA's hook"),
    ),
    Row(
        "mps-modes",
        "clients without a daemon are refused; a namespace's percentage holds",
        partial(not_possible, "it would set the compute mode of the GPU, which this program leaves alone"),
    ),
    Row(
        "mig-layout",
        "slices are made and removed beside one that works",
        partial(not_possible, "it would change the layout of the GPU, which this program leaves alone"),
    ),
)
