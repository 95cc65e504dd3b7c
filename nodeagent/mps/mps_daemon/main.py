"""The keeper of MPS: ``python -m nodeagent.mps.mps_daemon.main``, which ``moorage mps-keeper`` becomes.

It starts NVIDIA's control daemon, and ends with it the programs of tenants when it is stopped. It has no token and no
network.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from nodeagent.core.mps.limits import read_wanted
from nodeagent.listener import Listener, Stop, say
from nodeagent.mps.mps_daemon import options
from nodeagent.mps.mps_daemon.control import Control, Daemon
from nodeagent.mps.mps_daemon.loop import Keeper
from nodeagent.processes import Processes


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT (0); 1 where the socket can't be made."""
    parser = argparse.ArgumentParser(prog="moorage mps-keeper", description="Keep tenants' limits by MPS.")
    options.add_options(parser)
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
    keeper = Keeper(control, daemon, listener, interval_ns=given.interval_s, processes=Processes(), say=say)
    keeper.run(stop.is_set)
    listener.close()
    daemon.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
