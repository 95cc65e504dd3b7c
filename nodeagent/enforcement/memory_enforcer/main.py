"""``moorage memory-enforcer`` becomes this process: ``python -m nodeagent.enforcement.memory_enforcer.main``.

It needs the host's PIDs and CAP_KILL, with limits by the driver CAP_SYS_ADMIN and the host's control groups as well. It
has no token and no network. An image has to ship it compiled, as reservation/main.py says of pynvml. Its options are
not declared in runtime/settings: what that imports is more than the whole memory enforcer.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Final

import pynvml

from nodeagent.core.enforcement.messages import read_caps
from nodeagent.core.enforcement.overuse import Rules
from nodeagent.enforcement.memory_enforcer.limits import ROOT, Groups, Limiting
from nodeagent.enforcement.memory_enforcer.loop import LONGEST_NS, SHORTEST_NS, Ending, MemoryEnforcer, Pace
from nodeagent.enforcement.memory_enforcer.sampling import Sampler
from nodeagent.listener import Listener, Stop, say
from nodeagent.processes import Processes
from wire.units import SECOND_NS

SOCKET: Final = "/run/moorage/memory-enforcer/memory-enforcer.sock"
_SECONDS: Final = re.compile(r"([0-9]{1,4})(?:\.([0-9]{1,9}))?")
_LONGEST_GRACE_S: Final = 60
_MOST_TOLERANCE_MIB: Final = 65_536
_LONGEST_FOLDER: Final = 1_024


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the memory enforcer's options."""
    parser.add_argument("--socket", default=SOCKET, metavar="FILE", help=f"the agent's socket (default {SOCKET})")
    parser.add_argument(
        "--interval-s", type=_interval_ns, default=SECOND_NS, metavar="S", help="between looks, 0.25 to 10 (default 1)"
    )
    parser.add_argument(
        "--dry-run",
        choices=("true", "false"),
        default="true",
        help="report what would be ended, end nothing (default true)",
    )
    parser.add_argument(
        "--tolerance-mib",
        type=_tolerance_mib,
        default=Rules().tolerance_mib,
        metavar="MIB",
        help=f"allowed above a cap (default {Rules().tolerance_mib})",
    )
    parser.add_argument(
        "--grace-s",
        type=_grace_ns,
        default=0,
        metavar="S",
        help="SIGTERM this long before SIGKILL, 0 to 60 (default 0: SIGKILL)",
    )
    parser.add_argument(
        "--driver-limits",
        choices=("true", "false"),
        default="false",
        help="set caps as limits of control groups by the driver (default false)",
    )
    parser.add_argument(
        "--control-groups",
        type=_folder,
        default=ROOT,
        metavar="FOLDER",
        help=f"the host's control groups, version 2 (default {ROOT})",
    )


def written(given: argparse.Namespace) -> list[str]:
    """Write the options as a command line that is read as the same."""
    return [
        f"--socket={given.socket}",
        f"--interval-s={_seconds(given.interval_s)}",
        f"--dry-run={given.dry_run}",
        f"--tolerance-mib={given.tolerance_mib}",
        f"--grace-s={_seconds(given.grace_s)}",
        f"--driver-limits={given.driver_limits}",
        f"--control-groups={given.control_groups}",
    ]


def rules(given: argparse.Namespace) -> Rules:
    """How it judges. What is ending has its grace, and five seconds to give its memory back."""
    return Rules(
        tolerance_mib=given.tolerance_mib,
        dry_run=given.dry_run == "true",
        leaving_ns=Rules().leaving_ns + given.grace_s,
    )


def pace(given: argparse.Namespace) -> Pace:
    """How often it looks."""
    return Pace(interval_ns=given.interval_s)


def _seconds(ns: int) -> str:
    return f"{ns // SECOND_NS}.{ns % SECOND_NS:09}"


def _ns(text: str, allowed: str, *, least_ns: int, most_ns: int) -> int:
    written = _SECONDS.fullmatch(text)
    ns = int(written[1]) * SECOND_NS + int((written[2] or "").ljust(9, "0")) if written is not None else -1
    if not least_ns <= ns <= most_ns:
        raise argparse.ArgumentTypeError(f"{text!r:.40}: {allowed} are allowed")
    return ns


def _interval_ns(text: str) -> int:
    return _ns(text, "0.25 to 10 seconds", least_ns=SHORTEST_NS, most_ns=LONGEST_NS)


def _grace_ns(text: str) -> int:
    return _ns(text, f"0 to {_LONGEST_GRACE_S} seconds", least_ns=0, most_ns=_LONGEST_GRACE_S * SECOND_NS)


def _folder(text: str) -> str:
    if not text.startswith("/") or len(text) > _LONGEST_FOLDER:
        raise argparse.ArgumentTypeError(
            f"{text!r:.40}: a path from / on of at most {_LONGEST_FOLDER} signs is allowed"
        )
    return text


def _tolerance_mib(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 9 and int(text) <= _MOST_TOLERANCE_MIB):
        raise argparse.ArgumentTypeError(f"{text!r:.40}: 0 to {_MOST_TOLERANCE_MIB} MiB are allowed")
    return int(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT (0); 1 where the socket can't be made."""
    parser = argparse.ArgumentParser(
        prog="moorage memory-enforcer", description="End what has more GPU memory than its cap."
    )
    add_options(parser)
    given = parser.parse_args(argv)
    stop = Stop()
    try:
        listener = Listener(given.socket, read=read_caps, say=say)
    except OSError as error:
        say(f"--socket: {given.socket}: {error.strerror}; name a file in a folder that can be written")
        return 1
    listener.wake_by(stop.file)
    processes, judged_by = Processes(), rules(given)
    say(f"begun: {'dry run' if judged_by.dry_run else 'ends processes'}, socket {given.socket}")
    MemoryEnforcer(
        Sampler(pynvml, processes),
        Ending(processes, grace_ns=given.grace_s),
        listener,
        rules=judged_by,
        pace=pace(given),
        say=say,
        limiting=Limiting(pynvml, Groups(given.control_groups)) if given.driver_limits == "true" else None,
    ).run(stop.is_set)
    listener.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
