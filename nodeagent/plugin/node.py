"""What the device plug-in reads of its Node, and the labels that it writes there.

The Node says which file it serves by (labels of NVIDIA's configuration manager, or ours), and which GPUs an
administrator calls mended. What it said last is kept beside the plug-in's state, so that a start without an API server
serves as before, and that nothing said while the agent was away is lost. The labels are those of GPU feature discovery,
written where it does not run (nodeagent/core/plugin/labels.py).
"""

from __future__ import annotations

import contextlib
import logging
import random
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import NODES
from kube.client.retry import Backoff, BackoffRange
from kube.watch.signal import Signal
from nodeagent import kept_file
from nodeagent.core.plugin.labels import changes
from nodeagent.core.plugin.settings import Mistake, shown
from wire import names
from wire.core import Node

#: On a Node, the name of a file; the first that is there counts.
LABELS: Final = (names.NODE_AGENT_CONFIG, "nvidia.com/device-plugin.config")
_DEFAULT: Final = "default"


def chosen(labels: Mapping[str, str], files: Collection[str]) -> str | Mistake | None:
    """Return a file's name, None for no file (all defaults), or what is wrong with the label.

    Without a label: the file ``default``, or the only one there is, or none. These are NVIDIA's fallbacks ``named``,
    ``single`` and ``empty``, in the order of its default.
    """
    for label in LABELS:
        if (name := labels.get(label, "")) in files:
            return name
        if name:
            return Mistake(label, f"{shown(name)} is no file", ", ".join(sorted(files)[:20]) or "there are no files")
    if _DEFAULT in files:
        return _DEFAULT
    return next(iter(files)) if len(files) == 1 else None


_BETWEEN = re.compile(r"[\s,]+")


class NodeSaid(msgspec.Struct, frozen=True):
    """``labels``: those that choose the file. ``cleared``: the annotation's value, "" for none."""

    labels: Mapping[str, str] = {}
    cleared: str = ""


def said(labels: Mapping[str, str], annotations: Mapping[str, str]) -> NodeSaid:
    """Return what a Node of these labels and annotations says."""
    chosen = {label: labels[label] for label in LABELS if label in labels}
    return NodeSaid(chosen, annotations.get(names.NODE_GPU_CLEARED, ""))


def cleared(before: NodeSaid | None, now: NodeSaid) -> frozenset[str]:
    """Return the UUIDs that the Node calls mended, where it did not say the same before.

    Without a before nothing is: the annotation may be older than the illness.
    """
    if before is None or before.cleared == now.cleared:
        return frozenset()
    return frozenset(filter(None, _BETWEEN.split(now.cleared)))


def encoded(what: NodeSaid) -> bytes:
    """As JSON."""
    return msgspec.json.encode(what)


def decoded(content: bytes) -> NodeSaid | None:
    """Read it; None for what can't be read."""
    try:
        return msgspec.json.decode(content, type=NodeSaid)
    except (msgspec.DecodeError, RecursionError):
        return None


#: Of a mounted ConfigMap: its own links, which are no files of it.
_OF_THE_MOUNT: Final = ".."


class NodeSources:
    """``node`` is the Node as it was seen last, None before. ``folder`` has the files, None: there are none.

    ``kept``: the file that keeps what the Node said. All calls are made from one task.
    """

    def __init__(self, node: Callable[[], Node | None], *, folder: Path | None, kept: Path) -> None:
        self._node = node
        self._folder = folder
        self._path = kept
        self._kept = kept_file.read(kept, decoded)
        #: What ``cleared`` has told of.
        self._taken = self._kept

    @property
    def is_known(self) -> bool:
        """Whether the Node was seen, now or by an agent before this one."""
        return self._kept is not None or self._node() is not None

    def file(self) -> Path | Mistake | None:
        """Return the file that the Node names, as pluginports.Sources."""
        if self._folder is None:
            return None
        try:
            files = [each.name for each in self._folder.iterdir() if not each.name.startswith(_OF_THE_MOUNT)]
        except OSError as error:
            return Mistake(str(self._folder), f"can't be read: {error.strerror}", "a folder")
        found = chosen(self._now().labels, files)
        return self._folder / found if isinstance(found, str) else found

    def cleared(self) -> Collection[str]:
        """Return the UUIDs that the Node calls mended since the last call."""
        # The value of the last call was used by now. An agent that ends before this returns it again.
        self._keep(self._taken)
        if self._node() is None:
            return ()
        before, self._taken = self._taken, self._now()
        return cleared(before, self._taken)

    def _now(self) -> NodeSaid:
        node = self._node()
        if node is None:
            return self._taken or NodeSaid()
        return said(node.metadata.labels or {}, node.metadata.annotations or {})

    def _keep(self, what: NodeSaid | None) -> None:
        if what is None or what == self._kept:
            return
        self._kept = what
        # What is not kept costs nothing but what a restart forgets.
        with contextlib.suppress(OSError):
            kept_file.write(self._path, encoded(what))


_log: Final = logging.getLogger(__name__)
#: Between two looks at the Node. Labels that were taken away come back then; two writers that differ don't race.
_EVERY_S: Final = 30.0
_AGAIN: Final = BackoffRange(first_s=2.0, most_s=120.0)


class Labelling:
    """``seen`` is the Node as it was seen last, None before. Nothing is written before ``want``."""

    def __init__(self, api: Api, *, node: str, seen: Callable[[], Node | None], rng: random.Random) -> None:
        self._api = api
        self._name = node
        self._seen = seen
        self._backoff = Backoff(_AGAIN, rng)
        self._wanted: Mapping[str, str] | None = None
        self._changed = Signal()

    def want(self, labels: Mapping[str, str]) -> None:
        """Take all labels that the Node is to have."""
        if labels != self._wanted:
            self._wanted = dict(labels)
            self._changed.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            wait_s = await self._write()
            with anyio.move_on_after(wait_s):
                await self._changed.wait()

    async def _write(self) -> float:
        """Write what differs. Returns for how long to rest."""
        node = self._seen()
        if node is None or self._wanted is None:
            return 1.0
        found = changes(node.metadata.labels or {}, self._wanted)
        if not found:
            return _EVERY_S
        try:
            await self._api.patch(NODES, self._name, {"metadata": {"labels": found}})
        except ApiError as error:
            wait_s = self._backoff.fail()
            _log.warning("node %s could not be labelled: %s; again in %.1f s", self._name, error, wait_s)
            return wait_s
        self._backoff.succeed()
        return _EVERY_S
