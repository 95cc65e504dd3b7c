"""Rows about the memory enforcer's look: whose memory it sees, from where, and what a look costs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pynvml

from nodeagent.core.enforcement.overuse import Sample
from nodeagent.enforcement.memory_enforcer.sampling import Sampler
from nodeagent.processes import Processes
from tools.realgpu.rows import Outcome, Verdict, holding, judged, not_possible

_MIB: Final = 1 << 20
_HELD_MIB: Final = 4096
_PROCESSES, _LOOKS = 8, 200
#: Of a look at eight devices; this machine may have fewer.
_MOST_MS: Final = 5.0


def look() -> Sample:
    """Look once, as the memory enforcer does."""
    return Sampler(pynvml, Processes()).look(time.monotonic_ns())


def told(sample: Sample) -> dict[str, Any]:
    """What a look has seen, for a report."""
    return {
        device.uuid: {
            "used MiB": device.used_bytes // _MIB,
            "SM percent": device.sm_percent,
            "processes": [
                {
                    "pid": one.pid,
                    "known here": one.started != 0,
                    "MiB": None if one.used_bytes is None else one.used_bytes // _MIB,
                    "SM percent": one.sm_percent,
                }
                for one in device.processes
            ],
        }
        for device in sample.devices
    }


def sample() -> Outcome:
    """A process that holds 4096 MiB is seen by its own PID, with that and a context."""
    before = told(look())
    with holding(_HELD_MIB) as (holder,):
        if not holder.holds:
            return not_possible(holder.told)
        time.sleep(0.1)  # it has to be older than a clock tick
        seen = look()
        found = [one for device in seen.devices for one in device.processes if one.pid == holder.process.pid]
        used_mib = [one.used_bytes // _MIB for one in found if one.used_bytes is not None]
    facts = {"pid": holder.process.pid, "holder": holder.told, "before": before, "look": told(seen)}
    facts["context MiB"] = used_mib[0] - _HELD_MIB if used_mib else None
    is_seen = bool(used_mib) and used_mib[0] >= _HELD_MIB and found[0].started != 0
    return judged(facts, is_as_expected=is_seen)


def namespace() -> Outcome:
    """What a look sees from within a PID namespace of its own: its own PIDs, none, or the host's."""
    unshare = shutil.which("unshare")
    if unshare is None or os.geteuid() != 0:
        return not_possible("it needs root and the program unshare")
    with holding(1024) as (holder,):
        if not holder.holds:
            return not_possible(holder.told)
        time.sleep(0.1)
        command = [unshare, "-pf", "--mount-proc", sys.executable, "-m", "tools.realgpu.sampling"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode != 0:
        return not_possible(f"unshare: {done.stderr.strip()[-200:]}")
    return Outcome(Verdict.SEEN, {"pid outside": holder.process.pid, "look inside": json.loads(done.stdout)})


def cost() -> Outcome:
    """CPU time of a look while eight processes hold memory."""
    with holding(*[64] * _PROCESSES) as holders:
        if not all(holder.holds for holder in holders):
            return not_possible("; ".join(sorted({holder.told for holder in holders if not holder.holds})))
        sampler = Sampler(pynvml, Processes())
        first = sampler.look(time.monotonic_ns())
        cpu_s, wall_s = time.process_time(), time.monotonic()
        for _ in range(_LOOKS):
            sampler.look(time.monotonic_ns())
        cpu_ms = (time.process_time() - cpu_s) / _LOOKS * 1e3
        wall_ms = (time.monotonic() - wall_s) / _LOOKS * 1e3
    processes = sum(len(device.processes) for device in first.devices)
    seen = {
        "looks": _LOOKS,
        "GPUs": len(first.devices),
        "processes": processes,
        "CPU ms a look": round(cpu_ms, 3),
        "ms a look": round(wall_ms, 3),
    }
    return judged(seen, is_as_expected=cpu_ms <= _MOST_MS and processes >= _PROCESSES)


if __name__ == "__main__":
    print(json.dumps({"own PIDs": sorted(int(one.name) for one in Path("/proc").glob("[0-9]*")), **told(look())}))
