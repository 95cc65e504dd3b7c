"""The row about the warden's limits by the driver: on a pod's control group, seen through a read-only mount."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final

import pynvml

from nodeagent.core.enforcement.messages import Frames, Limited, read_report, write_caps
from tools.realgpu.holding import Holder, group
from tools.realgpu.limits import GROUPS, OURS, warden
from tools.realgpu.rows import Outcome, judged, not_possible

_CAP_MIB: Final = 2048
_WITHIN_S: Final = 10.0
#: As the chart mounts the host's groups into the warden.
_READ_ONLY: Final = f'mount -o remount,bind,ro {GROUPS} && exec "$@"'


def limits() -> Outcome:
    """The real warden sets a limit of a container's group that nobody has used yet, and reads it back."""
    if os.geteuid() != 0 or not (GROUPS / "cgroup.controllers").exists():
        return not_possible("it needs root and control groups of version 2")
    if shutil.which("unshare") is None:
        return not_possible("unshare is not there")
    pynvml.nvmlInit()
    device = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0))
    pod = str(uuid.uuid4())
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="warden-"))
        try:
            container = stack.enter_context(group(GROUPS / OURS / "kubepods" / f"pod{pod}" / (uuid.uuid4().hex * 2)))
        except OSError as error:
            return not_possible(f"a control group can't be made: {error}")
        options = ["--dry-run=true", "--driver-limits=true", f"--control-groups={GROUPS}"]
        under = ["unshare", "--mount", "sh", "-c", _READ_ONLY, "sh"]
        agent = stack.enter_context(warden(Path(folder) / "warden.sock", *options, under=under))
        agent.sendall(write_caps({(pod, device): _CAP_MIB}))
        limited = _limited(agent)
        if not limited.held and "can't limit" in limited.why:
            return not_possible(limited.why)
        told = [_tried(mib, container) for mib in (3000, 1000)]
        seen: dict[str, object] = {
            "cap MiB": _CAP_MIB,
            "held": limited.held == ((pod, device),),
            "why not": limited.why,
            "dmem.max": (container / "dmem.max").exists(),
            "one of 3000": told[0],
            "one of 1000": told[1],
        }
    holds = [one.startswith("held") for one in told]
    return judged(seen, is_as_expected=seen["held"] is True and holds == [False, True])


def _limited(agent: socket.socket) -> Limited:
    """What the warden reports of its limits, once it holds the cap or says why it does not."""
    frames, until_s = Frames(), time.monotonic() + _WITHIN_S
    agent.settimeout(_WITHIN_S)
    last = Limited((), "it reported none")
    with contextlib.suppress(TimeoutError):
        while time.monotonic() < until_s:
            for message in frames.cut(agent.recv(1 << 20)):
                last = read_report(message).driver or last
                if last.held or last.why:
                    return last
    return last


def _tried(mib: int, container: Path) -> str:
    holder = Holder(mib, group=container)
    holder.end()
    return holder.told
