"""A sink of spans that keeps them."""

from __future__ import annotations

from kube.telemetry.tracing import Span


class Spans:
    """What was told, in its order."""

    def __init__(self) -> None:
        self.taken: list[Span] = []

    def take(self, span: Span) -> None:
        self.taken.append(span)

    def lose(self) -> None:
        raise AssertionError
