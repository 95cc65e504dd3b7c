"""Rows about health and faults, and about a share without a cluster. They need Moorage's dependencies."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Final

from nodeagent.core.plugin.health import Health, Rules, on_look, on_xid
from nodeagent.plugin.nvml import NvmlDevices
from tools.realgpu.rows import Holder, Outcome, judged, not_possible

_IDLE_S: Final = 1.0
_FAULT_WITHIN_S: Final = 10.0
_MOORAGE: Final = "from cli.main import main; raise SystemExit(main())"


def health() -> Outcome:
    """Look as the device plug-in does: whether GPUs answer, and tell recovery action and row remapping."""
    reading = NvmlDevices().read()
    looks = {uuid: dataclasses.asdict(look) for uuid, look in reading.looks.items()}
    for look in looks.values():
        look["recovery"] = look["recovery"] and look["recovery"].name
    seen = {
        "cards": [dataclasses.asdict(card) for card in reading.cards],
        "slices": [dataclasses.asdict(one) for one in reading.slices],
        "looks": looks,
        "places (NVLink island, NUMA node)": dict(reading.places),
        "driver": dataclasses.asdict(reading.driver),
    }
    tells = [look["answers"] and None not in (look["recovery"], look["remap_failed"]) for look in looks.values()]
    return judged(seen, is_as_expected=bool(tells) and all(tells))


def fault() -> Outcome:
    """An illegal address of a program: XID 31 comes, does not count, and the GPU goes on answering."""
    devices = NvmlDevices()
    devices.read()
    cpu_s = time.process_time()
    idle = devices.faults(_IDLE_S)
    idle_cpu_ms = (time.process_time() - cpu_s) * 1e3
    holder = Holder(64, "--fault")
    try:
        if not holder.holds:
            return not_possible(holder.told)
        until, found = time.monotonic() + _FAULT_WITHIN_S, list(devices.faults(0.1))
        while not found and time.monotonic() < until:
            found += devices.faults(0.5)
        word = holder.rest(10)
    finally:
        holder.end()
    health = Health()
    for each in found:
        health = on_xid(health, each.xid or 0, 0, rules=Rules()) if each.xid else health
    look = next(iter(devices.read().looks.values()))
    health = on_look(health, look, 1, rules=Rules())
    seen = {
        "before": [each.xid for each in idle],
        f"CPU ms of {_IDLE_S:.0f} s without events": round(idle_cpu_ms, 1),
        "XIDs": [each.xid for each in found],
        "the program": word,
        "state": health.state.value,
        "answers": look.answers,
    }
    return judged(seen, is_as_expected=31 in [each.xid for each in found] and health.is_well and look.answers)


def share() -> Outcome:
    """``moorage run`` starts a program on half of the GPU, which finds it by UUID."""
    with tempfile.TemporaryDirectory(prefix="moorage-run-") as folder:
        program = [sys.executable, "-m", "tools.realgpu.hold", "1024"]
        command = [sys.executable, "-c", _MOORAGE, "run", "--gpus", "0.5", "--folder", folder, "--", *program]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, input="", env=dict(os.environ)
        )
    seen = {"exit code": done.returncode, "printed": done.stdout.strip(), "said": done.stderr.strip()[-400:]}
    if "ModuleNotFoundError" in done.stderr:
        return not_possible("Moorage's dependencies are not installed", **seen)
    is_given = re.search(r"0\.500 of GPU \d+ \(GPU-", done.stderr) is not None
    return judged(seen, is_as_expected=is_given and done.stdout.startswith("held 1024"))
