"""The back ends that an agent has, by its settings (nodeagent/backend.py)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.backend import BackEnd
from nodeagent.hamicore import HamiCore
from nodeagent.mps import Mps
from nodeagent.settings import AgentSettings

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def folders(settings: AgentSettings) -> Sequence[Path]:
    """Return the folders of all back ends, also of those that are switched off."""
    return [settings.limits / HamiCore.name]


def back_ends(settings: AgentSettings) -> Sequence[BackEnd]:
    """Return those that are switched on."""
    found: list[BackEnd] = []
    if settings.hami_core is not None:
        boot = _BOOT.read_text(encoding="ascii").strip()
        (folder,) = folders(settings)
        found.append(HamiCore(settings.hami_core, folder, boot=boot, seen_at=settings.hami_core_seen_at))
    if settings.mps_keeper is not None:
        found.append(Mps(settings.mps_keeper, PurePosixPath(settings.mps_pipes)))
    return found
