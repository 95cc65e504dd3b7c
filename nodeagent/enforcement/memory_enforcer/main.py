"""The warden's process: ``python -m nodeagent.enforcement.memory_enforcer.main``, which ``moorage warden`` becomes.

It needs the host's PIDs and CAP_KILL, with limits by the driver CAP_SYS_ADMIN and the host's control groups as well. It
has no token and no network. An image has to ship it compiled, as reservation/main.py says of pynvml.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pynvml

from nodeagent.core.enforcement.messages import read_caps
from nodeagent.enforcement.memory_enforcer import options
from nodeagent.enforcement.memory_enforcer.limits import Groups, Limiting
from nodeagent.enforcement.memory_enforcer.loop import Ending, Warden
from nodeagent.enforcement.memory_enforcer.sampling import Sampler
from nodeagent.listener import Listener, Stop, say
from nodeagent.processes import Processes


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT (0); 1 where the socket can't be made."""
    parser = argparse.ArgumentParser(prog="moorage warden", description="End what has more GPU memory than its cap.")
    options.add_options(parser)
    given = parser.parse_args(argv)
    stop = Stop()
    try:
        listener = Listener(given.socket, read=read_caps, say=say)
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


if __name__ == "__main__":
    raise SystemExit(main())
