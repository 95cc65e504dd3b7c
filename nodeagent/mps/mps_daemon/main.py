"""The MPS daemon: ``python -m nodeagent.mps.mps_daemon.main``, which ``moorage mps-daemon`` becomes.

It starts NVIDIA's control daemon, and ends with it the programs of tenants when it is stopped. It has no token and no
network. Its options are not declared in runtime/settings: what that imports is more than the whole MPS daemon.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from nodeagent.core.mps import control
from nodeagent.core.mps.limits import read_wanted
from nodeagent.listener import Listener, Stop, say
from nodeagent.mps.mps_daemon.control import PROGRAM, Control, Daemon
from nodeagent.mps.mps_daemon.loop import MpsDaemon
from nodeagent.processes import Processes
from wire.units import SECOND_NS

SOCKET: Final = "/run/moorage/mps-daemon/mps-daemon.sock"
PIPES: Final = "/run/moorage/mps"
LOGS: Final = "/var/log/nvidia-mps"
_LONGEST_S: Final = 60
#: Of any tenant: names have the same lengths.
_UUID: Final = "00000000-0000-0000-0000-000000000000"
_SAMPLE: Final = control.Wanted(_UUID, f"GPU-{_UUID}", 0, 1)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the MPS daemon's options."""
    parser.add_argument("--socket", default=SOCKET, metavar="FILE", help=f"the agent's socket (default {SOCKET})")
    parser.add_argument(
        "--pipes",
        type=pipes,
        default=PIPES,
        metavar="FOLDER",
        help=f"pipe directory of the control daemon (default {PIPES})",
    )
    parser.add_argument("--logs", default=LOGS, metavar="FOLDER", help=f"logs of the control daemon (default {LOGS})")
    parser.add_argument("--control", default=PROGRAM, metavar="FILE", help=f"NVIDIA's program (default {PROGRAM})")
    parser.add_argument(
        "--interval-s",
        type=_interval_ns,
        default=5 * SECOND_NS,
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
        f"--interval-s={given.interval_s // SECOND_NS}",
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
    return int(text) * SECOND_NS


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT (0); 1 where the socket can't be made."""
    parser = argparse.ArgumentParser(prog="moorage mps-daemon", description="Keep tenants' limits by MPS.")
    add_options(parser)
    given = parser.parse_args(argv)
    stop = Stop()
    try:
        listener = Listener(given.socket, read=read_wanted, say=say)
    except OSError as error:
        say(f"--socket: {given.socket}: {error.strerror}; name a file in a folder that can be written")
        return 1
    listener.wake_by(stop.file)
    say(f"begun: pipe directory {given.pipes}, socket {given.socket}")
    control = Control(given.control, pipes=Path(given.pipes), logs=Path(given.logs), stop=stop.file)
    daemon = Daemon(control, say=say)
    mps_daemon = MpsDaemon(control, daemon, listener, interval_ns=given.interval_s, processes=Processes(), say=say)
    mps_daemon.run(stop.is_set)
    listener.close()
    daemon.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
