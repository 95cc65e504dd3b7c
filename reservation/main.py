"""The reservation process as it runs in its pod: a blocking driver of reservation/steps.py.

Console script ``moorage-reservation``. Says on stderr what it holds, or in one line why it can't.

An image has to ship it compiled (``python -m compileall``): compiling pynvml, 8,000 lines, at each start takes half as
much memory again as holding a device does, and pods have no place to keep the result.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping

from reservation.device import DeviceReader
from reservation.http_client import ApiServer, Misconfigured, endpoint
from reservation.nvml import NvmlReader
from reservation.steps import (
    Action,
    Answer,
    Call,
    Event,
    Exit,
    Hold,
    NoAnswer,
    ReadDevice,
    Stopped,
    Wait,
    Waited,
    start,
    step,
)

#: Wait up to the given seconds (None: for ever) and return whether the process was asked to stop meanwhile.
StopWait = Callable[[float | None], bool]

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main() -> int:
    """Run until stopped (0) or failed (1)."""
    # Blocked and waited for, not handled: a signal that comes at any moment stays pending until we look, so there is
    # no gap before a wait in which it could be missed. A call in flight ends first, its time-out bounds that.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        server = ApiServer(endpoint(os.environ))
    except Misconfigured as error:
        _say(str(error))
        return 1
    return drive(os.environ, call=server.call, reader=NvmlReader(), stop_wait=wait_for_stop)


def wait_for_stop(timeout_s: float | None) -> bool:
    """Wait for a stop signal. They have to be blocked."""
    if timeout_s is None:
        signal.sigwait(_STOP_SIGNALS)
        return True
    return signal.sigtimedwait(_STOP_SIGNALS, timeout_s) is not None


def drive(
    environ: Mapping[str, str],
    *,
    call: Callable[[Call], Answer | NoAnswer],
    reader: DeviceReader,
    stop_wait: StopWait,
) -> int:
    """Carry the steps out until Exit and return its code."""

    def carry_out(action: Action) -> Event:
        match action:
            case Call():
                return call(action)
            case ReadDevice():
                return reader.read()
            case Wait(seconds=seconds, reason=reason):
                _say(f"{reason}; trying again in {seconds:.2f} s")
                return Stopped() if stop_wait(seconds) else Waited()
            case Hold(message=message):
                _say(message)
                stop_wait(None)
                return Stopped()
            case Exit():
                raise AssertionError("nothing to carry out after Exit")

    state, action = start(environ)
    while not isinstance(action, Exit):
        event = carry_out(action)
        if not isinstance(event, Stopped) and stop_wait(0):
            event = Stopped()
        state, action = step(state, event)
    if action.message:
        _say(action.message)
    return action.code


def _say(message: str) -> None:
    """Write one line, also for a message with line breaks."""
    sys.stderr.write(" ".join(message.split()) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
