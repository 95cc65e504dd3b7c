"""Waking those who wait for the world to change."""

from __future__ import annotations

from collections.abc import Iterable

from kube.watch.signal import Signal


class Subscriptions:
    """Who wants to be woken for which key."""

    def __init__(self) -> None:
        self._signals: dict[str, dict[Signal, None]] = {}

    def add(self, signal: Signal, keys: Iterable[str]) -> None:
        """Wake ``signal`` when one of ``keys`` changes."""
        for key in keys:
            self._signals.setdefault(key, {})[signal] = None

    def remove(self, signal: Signal, keys: Iterable[str]) -> None:
        """Take a subscription back."""
        for key in keys:
            waiting = self._signals.get(key, {})
            waiting.pop(signal, None)
            if not waiting:
                self._signals.pop(key, None)

    def is_awaited(self, key: str) -> bool:
        """Whether anybody wants to be woken for ``key``."""
        return key in self._signals

    def wake(self, key: str) -> None:
        """Wake all who wait for ``key``."""
        for signal in self._signals.get(key, ()):
            signal.set()
