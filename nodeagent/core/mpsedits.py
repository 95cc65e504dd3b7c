"""What a tenant by its books is held to by MPS, and what its container gets for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from nodeagent.core import mps
from nodeagent.core.caps import Tenancy
from nodeagent.core.edits import Edits, Mount
from nodeagent.core.mps import Wanted
from wire import names

#: The mode of pods that wish to run under MPS. Those that wish no mode run under it, too.
_MODES: Final = frozenset({"", mps.NAME})


def wanted(tenant: Sequence[Tenancy]) -> Wanted | None:
    """Return what a tenant is held to; None where MPS does not serve it.

    A client has one pipe directory, and so one server and one GPU. Pods with several are not given one
    (gpu/limits.py).
    """
    if len(tenant) != 1 or tenant[0].mode not in _MODES:
        return None
    (one,) = tenant
    percent = one.compute_percent if 0 < one.compute_percent < mps.ALL_COMPUTE else mps.ALL_COMPUTE
    if not (one.cap_mib or percent < mps.ALL_COMPUTE) or not mps.can_be_named(one.pod_uid, one.device):
        return None
    return Wanted(one.pod_uid, one.device, one.cap_mib, percent)


def edits(of: Wanted, pipes: PurePosixPath) -> Edits:
    """Return what a tenant's container gets.

    The folder is where the daemon has it, and read-only: nobody in the container puts another socket in its place.
    The container sees one GPU, its number 0. A pod's own entry for a GPU that is not there would make the client drop
    the namespace's memory limit as well, so the variables are replaced.
    """
    its = mps.folder(pipes, of)
    env = {names.ENV_MPS_PIPES: str(its), names.ENV_MPS_PERCENT: str(of.compute_percent)}
    if of.memory_mib:
        env[names.ENV_MPS_MEMORY] = f"0={of.memory_mib}M"
    return Edits((Mount(its, its),), env)
