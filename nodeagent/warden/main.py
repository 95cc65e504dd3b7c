"""The warden's process: ``python -m nodeagent.warden.main``, which ``moorage warden`` becomes.

It needs the host's PIDs and CAP_KILL, with limits by the driver CAP_SYS_ADMIN and the host's control groups as well. It
has no token and no network. An image has to ship it compiled, as reservation/main.py says of pynvml.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import pynvml

from nodeagent.warden import options
from nodeagent.warden.ending import Ending
from nodeagent.warden.groups import Groups
from nodeagent.warden.limiting import Limiting
from nodeagent.warden.listening import Listener
from nodeagent.warden.loop import Warden
from nodeagent.warden.processes import Processes
from nodeagent.warden.sampling import Sampler


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT (0); 1 where the socket can't be made."""
    parser = argparse.ArgumentParser(prog="moorage warden", description="End what has more GPU memory than its cap.")
    options.add_options(parser)
    given = parser.parse_args(argv)
    stop = _Stop()
    try:
        listener = Listener(given.socket, say=say)
    except OSError as error:
        say(f"--socket: {given.socket}: {error.strerror}; name a file in a folder that can be written")
        return 1
    listener.wake_by(stop.file)
    processes, rules = Processes(), options.rules(given)
    say(f"begun: {'dry run' if rules.dry_run else 'ends processes'}, socket {given.socket}")
    Warden(
        Sampler(pynvml, processes),
        Ending(processes, grace_ns=given.grace_s),
        listener,
        rules=rules,
        pace=options.pace(given),
        say=say,
        limiting=Limiting(pynvml, Groups(given.control_groups)) if given.driver_limits == "true" else None,
    ).run(stop.is_set)
    listener.close()
    return 0


class _Stop:
    """Whether a signal said stop; ``file`` can be read from then on."""

    def __init__(self) -> None:
        self._is_set = False
        self.file, self._written = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def is_set(self) -> bool:
        return self._is_set

    def _set(self, _number: int, _frame: FrameType | None) -> None:
        self._is_set = True
        os.write(self._written, b"!")


def say(message: str) -> None:
    """Write one line, whatever signs the message has."""
    sys.stderr.write("".join(sign if sign.isprintable() else "?" for sign in message) + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
