"""The CDI file with what limits tenants' containers, one device for each pod. Pure.

A container names the device ``moorage.dev/limits=POD-UID`` where its Binding did (gpu/agentlimits.py). The runtime
refuses a container whose device is not in the file. So a container never starts without its limits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from nodeagent.core.edits import Edits
from wire import names

FILE: Final = "moorage-limits.json"
#: The first in which a device's name may begin with a digit. A mount's type is older.
_VERSION: Final = "0.5.0"


def content(edits: Mapping[str, Edits]) -> bytes:
    """Return the file. ``edits``: what the containers of each pod get, by its UID; none of them is empty."""
    devices = [{"name": pod, "containerEdits": each.written()} for pod, each in sorted(edits.items())]
    kind = names.LIMITS_DEVICE_PREFIX.removesuffix("=")
    return json.dumps({"cdiVersion": _VERSION, "kind": kind, "devices": devices}, indent=1).encode()
