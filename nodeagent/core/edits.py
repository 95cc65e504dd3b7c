"""What is added to the containers of a tenant, as CDI says it: mounts and variables. Pure values.

Hooks are left out: a hook is a program of the host that runs as root whenever a container starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, Final

#: Options of mounts: no writing, no programs.
READ_ONLY: Final = "ro"
NO_PROGRAMS: Final = "noexec"
_BIND: Final = ("nosuid", "nodev", "rbind", "rprivate")


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host, at ``at`` in a container. ``is_code``: programs there may be run or loaded."""

    host: PurePosixPath
    at: PurePosixPath
    is_writable: bool = False
    is_code: bool = False

    def written(self) -> dict[str, Any]:
        """As a CDI file has it."""
        options = [
            *(() if self.is_writable else (READ_ONLY,)),
            *_BIND,
            *(() if self.is_code else (NO_PROGRAMS,)),
        ]
        return {"hostPath": str(self.host), "containerPath": str(self.at), "options": options}


@dataclass(frozen=True, slots=True)
class Scratch:
    """A file system of the container's own in memory, which nobody else sees. ``most_kib``: its size."""

    at: PurePosixPath
    most_kib: int

    def written(self) -> dict[str, Any]:
        """As a CDI file has it; every user of the container may write there."""
        options = [f"size={self.most_kib}k", "nr_inodes=64", "mode=1777", "nosuid", "nodev", NO_PROGRAMS]
        return {"hostPath": "tmpfs", "containerPath": str(self.at), "type": "tmpfs", "options": options}


@dataclass(frozen=True, slots=True)
class Edits:
    """All that is added. A variable that a container has already is replaced (containers of the CDI library)."""

    mounts: tuple[Mount | Scratch, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def with_former(self, former: Edits | None) -> Edits:
        """Return these with the variables that the same container had before, and lacks now.

        Those of another kind of limit are left out: what its variables name is not mounted any more.
        """
        if former is None or {each.at for each in former.mounts} != {each.at for each in self.mounts}:
            return self
        return Edits(self.mounts, {**former.env, **self.env})

    def written(self) -> dict[str, Any]:
        """As a CDI file has it, in an order that does not change."""
        found: dict[str, Any] = {}
        if self.env:
            found["env"] = [f"{name}={value}" for name, value in sorted(self.env.items())]
        if self.mounts:
            found["mounts"] = [mount.written() for mount in self.mounts]
        return found


def merged(parts: Iterable[Edits]) -> Edits:
    """Put the edits of several back ends together. Of one variable the last part's value counts."""
    mounts: list[Mount | Scratch] = []
    env: dict[str, str] = {}
    for part in parts:
        mounts += (mount for mount in part.mounts if mount not in mounts)
        env |= part.env
    return Edits(tuple(mounts), env)
