"""The CDI file that mounts each tenant's own folder into its containers, one device for each pod. Pure.

Source: Container Device Interface, specification 0.5, the first in which a device's name may begin with a digit.
The runtime refuses a container that names a device which is not in the file, and kubelet tries again: so a container
never starts without the view that it was given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.core.messages import can_be_capped
from wire import names

FILE: Final = "moorage-view.json"
#: In a container.
MOUNTED_AT: Final = "/run/moorage/view"
SOCKET: Final = "share.sock"
_VERSION: Final = "0.5.0"
_OPTIONS: Final = ("ro", "nosuid", "nodev", "noexec", "rbind", "rprivate")
_ANY_DEVICE: Final = "GPU-0"


def is_sound(pod_uid: str) -> bool:
    """Whether a pod's UID is of the form of one, so that it can be the name of a folder and of a device."""
    return can_be_capped(pod_uid, _ANY_DEVICE)


def content(folder: PurePosixPath, pods: Iterable[str]) -> bytes:
    """Return the file. ``folder`` has a folder for each pod, named by its UID."""
    devices = [{"name": pod, "containerEdits": {"mounts": [_mount(folder / pod)]}} for pod in sorted(pods)]
    kind = names.VIEW_DEVICE_PREFIX.removesuffix("=")
    return json.dumps({"cdiVersion": _VERSION, "kind": kind, "devices": devices}, indent=1).encode()


def _mount(folder: PurePosixPath) -> dict[str, Any]:
    return {"hostPath": str(folder), "containerPath": MOUNTED_AT, "options": list(_OPTIONS)}
