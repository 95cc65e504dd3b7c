"""The CDI file of a node's GPUs, made by NVIDIA's ``nvidia-ctk``: which driver files a container needs is its business.

The kind is that of NVIDIA's device plugin, so containers that were given devices by it find the same names. Not seen
with the real program yet.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Final

#: Where container runtimes look, under any root folder.
FOLDER: Final = "/var/run/cdi"
_FILE: Final = "moorage-gpu.json"
_VENDOR, _CLASS = "k8s.device-plugin.nvidia.com", "gpu"
_WITHIN_S: Final = 60
_LONGEST: Final = 300


class NoCdi(Exception):
    """Raised when there is no CDI file; the text says why."""


def generate(ctk_path: str, driver_root: str) -> bytes:
    """Ask ``nvidia-ctk`` for the file's contents; blocks for seconds. Raises NoCdi."""
    arguments = ["cdi", "generate", "--format=json", f"--vendor={_VENDOR}", f"--class={_CLASS}"]
    command = [ctk_path, *arguments, "--device-name-strategy=uuid", f"--driver-root={driver_root}", "--output=-"]
    try:
        # The path is an administrator's.
        done = subprocess.run(command, capture_output=True, check=False, timeout=_WITHIN_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCdi(f"{ctk_path}: {error}"[:_LONGEST]) from error
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise NoCdi(f"{ctk_path} ended with {done.returncode}: {said}"[:_LONGEST])
    if missing := _what_is_missing(done.stdout):
        raise NoCdi(f"{ctk_path}: {missing}")
    return done.stdout


def write(folder: Path, content: bytes) -> None:
    """Put the file of GPUs in its place. Raises NoCdi."""
    put(folder, _FILE, content)


def put(folder: Path, name: str, content: bytes) -> None:
    """Put a file in its place, in one step. Raises NoCdi."""
    fresh = folder / f".{name}.new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh.write_bytes(content)
        fresh.replace(folder / name)
    except OSError as error:
        raise NoCdi(str(error)) from error


def _what_is_missing(content: bytes) -> str:
    try:
        said: Any = json.loads(content)
    except (ValueError, RecursionError):
        return "its output is no JSON"
    kind = said.get("kind") if isinstance(said, dict) else None
    return "" if kind == f"{_VENDOR}/{_CLASS}" else f"its output is of kind {str(kind)[:80]!r}"
