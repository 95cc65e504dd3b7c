"""What the shell tells of pods to observers; scheduler/telemetry/tracing.py makes traces of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from typing_extensions import override

from scheduler.core.model.plan import Placement
from scheduler.core.model.verdict import Code
from wire.core import Pod


class Traces(Protocol):
    """Is called with what becomes of pods. Times are the event loop's, in seconds."""

    def leads(self, is_leading: bool) -> None:
        """Whether this replica leads from now on, and so tells."""
        ...

    def seen(self, pod: Pod) -> None:
        """A pod as a watch, a list or an answer shows it."""
        ...

    def gone(self, uid: str) -> None:
        """A pod is gone."""
        ...

    def waits(self, uid: str, code: Code) -> None:
        """A pod waits for another reason than before."""
        ...

    def decided(self, placement: Placement, kind: str, began_s: float, ended_s: float) -> None:
        """A place was found by a decision that took from ``began_s`` to ``ended_s``."""
        ...

    def handed_over(self, placement: Placement, began_s: float) -> None:
        """Its BindRequest was made."""
        ...

    def attempted(self, placement: Placement, began_s: float, joined_s: float, because: str | None) -> None:
        """Its binding here has ended. ``joined_s``: when it stood in its books; ``because`` None: it is bound."""
        ...

    def of(self, uid: str) -> Mapping[str, str]:
        """Return what a line of the log says of this pod's trace."""
        ...


class Untraced(Traces):
    """Nobody follows pods."""

    @override
    def leads(self, is_leading: bool) -> None:
        """Nothing."""

    @override
    def seen(self, pod: Pod) -> None:
        """Nothing."""

    @override
    def gone(self, uid: str) -> None:
        """Nothing."""

    @override
    def waits(self, uid: str, code: Code) -> None:
        """Nothing."""

    @override
    def decided(self, placement: Placement, kind: str, began_s: float, ended_s: float) -> None:
        """Nothing."""

    @override
    def handed_over(self, placement: Placement, began_s: float) -> None:
        """Nothing."""

    @override
    def attempted(self, placement: Placement, began_s: float, joined_s: float, because: str | None) -> None:
        """Nothing."""

    @override
    def of(self, uid: str) -> Mapping[str, str]:
        """Nothing."""
        return {}
