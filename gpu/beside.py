"""What the containers of a pod with shares are given beside its GPUs: CDI devices of the pod's own, and no GPUs.

Each is named by a prefix and the UID of the pod. The CDI files of the agent on the node define them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from gpu import agentlimits
from gpu.memorycaps import MemoryCaps, caps
from gpu.translation import Translation
from wire import names

#: Before the pod's UID.
PREFIXES: Final = (names.VIEW_DEVICE_PREFIX, names.LIMITS_DEVICE_PREFIX)


def devices(
    pod_uid: str, taken: Translation, *, enforces: Collection[str], shows_tenants: bool, memory_caps: MemoryCaps
) -> tuple[str, ...]:
    """Return CDI names for a pod that is bound to a node.

    ``enforces``: what the node says that it holds pods to (gpu/enforcement.py). ``shows_tenants``: its agent shows
    tenants their own shares. ``memory_caps``: whose memory caps are written into books.
    """
    has_limits = agentlimits.are_given(taken, caps(taken, memory_caps), enforces)
    given = {names.VIEW_DEVICE_PREFIX: shows_tenants, names.LIMITS_DEVICE_PREFIX: has_limits}
    return tuple(prefix + pod_uid for prefix, is_given in given.items() if is_given)
