"""Debian's packages, through apt: with no question asked, and with an end where no index answers."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_WITHIN_S = 900.0
#: Who can't reach an index hears so within a minute, not after apt's many tries.
_OPTIONS = tuple(
    word
    for option in ("Acquire::Retries=1", "Acquire::http::Timeout=20", "Acquire::https::Timeout=20")
    for word in ("-o", option)
)
#: Packages may be fetched into a folder that apt's own user can't write; another apt may be at work for a moment.
_MORE = ("-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=120")


class Unavailable(Exception):
    """Raised when apt can't do what it was told; the text is the command and its first error."""


def apt(program: str, *arguments: str, folder: Path | None = None) -> str:
    """Run ``apt-get`` or ``apt-cache`` and return its output. Raises Unavailable."""
    try:
        done = subprocess.run(
            [program, *_OPTIONS, *_MORE, *arguments],
            cwd=folder,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_WITHIN_S,
            check=False,
        )
    except FileNotFoundError:
        raise Unavailable(f"{program}: not there, so this is no Debian") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{program} {arguments[0]}: no end within {_WITHIN_S:.0f} s") from None
    if done.returncode:
        wrong = [line for line in (done.stderr + done.stdout).splitlines() if line.startswith("E: ")]
        raise Unavailable(f"{program} {arguments[0]}: {wrong[0] if wrong else f'ended with {done.returncode}'}")
    return done.stdout
