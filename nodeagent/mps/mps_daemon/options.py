"""What an administrator may choose about the MPS keeper, as options of a command line.

Not declared in runtime/settings: what that imports is more than the whole keeper.
"""

from __future__ import annotations

import argparse
from pathlib import PurePosixPath
from typing import Final

from nodeagent.core.mps import control
from nodeagent.mps.mps_daemon.control import PROGRAM

SOCKET: Final = "/run/moorage/mps-keeper/keeper.sock"
PIPES: Final = "/run/moorage/mps"
LOGS: Final = "/var/log/nvidia-mps"
_SECOND_NS: Final = 10**9
_LONGEST_S: Final = 60
#: Of any tenant: names have the same lengths.
_UUID: Final = "00000000-0000-0000-0000-000000000000"
_SAMPLE: Final = control.Wanted(_UUID, f"GPU-{_UUID}", 0, 1)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the keeper's options."""
    parser.add_argument("--socket", default=SOCKET, metavar="FILE", help=f"the agent's socket (default {SOCKET})")
    parser.add_argument(
        "--pipes", type=pipes, default=PIPES, metavar="FOLDER", help=f"pipe directory of the daemon (default {PIPES})"
    )
    parser.add_argument("--logs", default=LOGS, metavar="FOLDER", help=f"logs of the daemon (default {LOGS})")
    parser.add_argument("--control", default=PROGRAM, metavar="FILE", help=f"NVIDIA's program (default {PROGRAM})")
    parser.add_argument(
        "--interval-s",
        type=_interval_ns,
        default=5 * _SECOND_NS,
        metavar="S",
        help="between looks, 1 to 60 (default 5)",
    )


def written(given: argparse.Namespace) -> list[str]:
    """Write the options as a command line that is read as the same."""
    return [
        f"--socket={given.socket}",
        f"--pipes={given.pipes}",
        f"--logs={given.logs}",
        f"--control={given.control}",
        f"--interval-s={given.interval_s // _SECOND_NS}",
    ]


def pipes(text: str) -> str:
    """Read a pipe directory: an absolute path, so short that a namespace's socket can be opened below it."""
    most = control.LONGEST_PATH - len(str(control.folder(PurePosixPath("/"), _SAMPLE) / control.SOCKET))
    if not text.startswith("/") or len(text.encode()) > most:
        raise argparse.ArgumentTypeError(f"{text!r:.40}: a path from / on of at most {most} bytes is allowed")
    return text


def _interval_ns(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= _LONGEST_S):
        raise argparse.ArgumentTypeError(f"{text!r:.40}: 1 to {_LONGEST_S} seconds are allowed")
    return int(text) * _SECOND_NS
