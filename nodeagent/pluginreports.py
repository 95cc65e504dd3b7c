"""What the device plug-in says, for the GpuNode, for Events about the Node, and for the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kube.client.clock import Clock, monotonic_ns
from kube.events import EventRecorder
from nodeagent.core.health import Health
from nodeagent.core.mistake import Mistake
from nodeagent.nodeevents import NodeEvents
from wire import names
from wire.core import Node
from wire.crds.gpunode import CardHealth, Missing
from wire.rfc3339 import rfc3339

_log: Final = logging.getLogger(__name__)
#: Mistakes of a file that an event names.
_MOST_TOLD: Final = 4
_PLUGIN: Final = "device-plugin"


class Reports:
    """A pluginports.Observer. ``on_change`` is called when ``missing`` or ``card_health`` are others.

    ``seen`` is the Node as it was seen last; None before.
    """

    def __init__(self, events: EventRecorder, clock: Clock, *, node: str, seen: Callable[[], Node | None]) -> None:
        self._events = NodeEvents(events, node=node, seen=seen)
        self._clock = clock
        self._mistakes: tuple[Mistake, ...] = ()
        self._unreadable = ""
        self._stopped = ""
        self._failures: dict[str, str] = {}
        self._states: Mapping[str, Health] = {}
        #: Health of each GPU and slice that is or was ill, by UUID.
        self.card_health: Mapping[str, CardHealth] = {}
        #: Resources that another plug-in serves, and how that was found out.
        self.rivals: dict[str, str] = {}
        self.on_change: Callable[[], None] | None = None
        self.on_labels: Callable[[Mapping[str, str]], None] | None = None

    def missing(self) -> list[Missing]:
        """Say what the plug-in can't do on this node, and why."""
        found = [Missing(what=_PLUGIN, why=why) for why in (self._stopped, self._unreadable) if why]
        if self._mistakes:
            found.append(Missing(what=f"{_PLUGIN} file", why=_written(self._mistakes)))
        for resource, why in sorted((self._failures | self.rivals).items()):
            found.append(Missing(what=resource, why=why))
        return found

    def registered(self, resource: str, kubelet: tuple[int, int]) -> None:
        """Note that kubelet has read the devices of a resource."""
        del kubelet
        _log.info("kubelet has read the devices of %s", resource)
        if self._failures.pop(resource, ""):
            self._changed()

    def rival(self, resource: str, what: str) -> None:
        """Note that another plug-in serves a resource; "": none does."""
        if self.rivals.get(resource, "") == what:
            return
        if what:
            self.rivals[resource] = what
            self._failures.pop(resource, None)
            self._events.warn(names.REASON_PLUGIN_RIVAL, "Registering", f"{resource} is not served: {what}")
        else:
            del self.rivals[resource]
            _log.info("no other device plug-in serves %s any more", resource)
        self._changed()

    def failed(self, resource: str, what: str) -> None:
        """Note why a resource could not be registered."""
        if self._failures.get(resource) != what:
            self._failures[resource] = what
            _log.warning("%s could not be registered with kubelet: %s", resource, what)
            self._changed()

    def withdrawn(self, resource: str) -> None:
        """Forget a resource that is not served any more."""
        was_rival, had_failed = self.rivals.pop(resource, ""), self._failures.pop(resource, "")
        if was_rival or had_failed:
            self._changed()

    def refused(self, mistakes: Sequence[Mistake]) -> None:
        """Note what is wrong with the file."""
        if self._mistakes == tuple(mistakes):
            return
        self._mistakes = tuple(mistakes)
        if mistakes:
            self._events.warn(names.REASON_CONFIG_REFUSED, "Configuring", _written(mistakes))
        self._changed()

    def noted(self, notes: Sequence[str]) -> None:
        """Log which parts of the file have no effect."""
        for note in notes:
            _log.info("without effect on this node: %s", note)

    def health(self, states: Mapping[str, Health]) -> None:
        """Note the health of all devices that are, or were, not well."""
        told: dict[str, CardHealth] = {}
        for uuid, state in states.items():
            if self._states.get(uuid) == state:
                told[uuid] = self.card_health[uuid]
                continue
            told[uuid] = self._told(state)
            if told[uuid] != self.card_health.get(uuid):
                _log.warning("%s is %s: %s", uuid, state.state.value, state.reason or "no sign of illness")
        self._states = dict(states)
        if told != self.card_health:
            self.card_health = told
            self._changed()

    def labelled(self, labels: Mapping[str, str]) -> None:
        """Pass on which labels the node is to have."""
        if self.on_labels is not None:
            self.on_labels(labels)

    def unreadable(self, why: str) -> None:
        """Note that the driver does not answer; "": it does."""
        if self._unreadable != why:
            self._unreadable = why
            self._changed()

    def stopped(self, why: str) -> None:
        """Note that the plug-in does not run, and is started again; "": it runs."""
        if self._stopped != why:
            self._stopped = why
            self._changed()

    def _told(self, health: Health) -> CardHealth:
        """Return it with the time of day: ``since_ns`` is of the machine's uptime."""
        since_ns = self._clock.now_ns() - (monotonic_ns() - health.since_ns)
        return CardHealth(state=health.state.value, reason=health.reason, since=rfc3339(since_ns))

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()


def _written(mistakes: Sequence[Mistake]) -> str:
    more = len(mistakes) - _MOST_TOLD
    told = "; ".join(map(str, mistakes[:_MOST_TOLD]))
    return f"{told}; and {more} more" if more > 0 else told
