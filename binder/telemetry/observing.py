"""What of the binder is counted, as values; the metrics library is used by runtime/metrics, not here.

What is read when somebody asks, and not counted as it happens, is ``binder/report/standing.py``'s.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, Protocol

from typing_extensions import override

from gpu.cause import Cause
from sharing import state
from sharing.state import Action


class Stage(enum.Enum):
    """Where the time of an attempt goes. The value is its stable name for machines."""

    #: Entering a book; making the reservation pod where there is none.
    JOIN = "join"
    #: From the first join until all devices were told: the reservation pod starts and looks.
    LEARN = "learn"
    #: Looking for other claims on a device.
    VERIFY = "verify"
    READ_POD = "read-pod"
    CONFIG_MAPS = "config-maps"
    BIND = "bind"
    TELL_BOUND = "tell-bound"
    RENEW = "renew"
    DROP = "drop-request"
    FENCE = "fence"
    LEAVE = "leave"


_STAGES: Final[Mapping[type[Action], Stage]] = {
    state.Join: Stage.JOIN,
    state.Verify: Stage.VERIFY,
    state.ReadPod: Stage.READ_POD,
    state.WriteConfigMaps: Stage.CONFIG_MAPS,
    state.PostBinding: Stage.BIND,
    state.TellBound: Stage.TELL_BOUND,
    state.Renew: Stage.RENEW,
    state.DropRequest: Stage.DROP,
    state.Fence: Stage.FENCE,
    state.Leave: Stage.LEAVE,
}


def stage_of(action: Action) -> Stage:
    """The stage that an action is."""
    return _STAGES[type(action)]


class Observer(Protocol):
    """Is called with what happens. It must not raise, and returns within microseconds."""

    def took(self, stage: Stage, seconds: float) -> None:
        """Something took so long, by the event loop's clock."""
        ...

    def ended(self, because: Cause | None, took_s: float) -> None:
        """An attempt ended, so long after its BindRequest was seen; None: its pod is bound by it."""
        ...


class Unobserved(Observer):
    """Nobody counts."""

    @override
    def took(self, stage: Stage, seconds: float) -> None:
        """Nothing."""

    @override
    def ended(self, because: Cause | None, took_s: float) -> None:
        """Nothing."""
