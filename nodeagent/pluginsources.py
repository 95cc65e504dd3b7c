"""What the device plug-in asks of its Node: which file it serves by, and which GPUs an administrator calls mended.

What the Node said last is kept beside the plug-in's state, so that a start without an API server serves as before, and
that nothing said while the agent was away is lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from nodeagent.core import configchoice, nodesaid
from nodeagent.core.mistake import Mistake
from nodeagent.core.nodesaid import NodeSaid
from wire.core import Node

#: Of a mounted ConfigMap: its own links, which are no files of it.
_OF_THE_MOUNT: Final = ".."
_MOST_KEPT_BYTES: Final = 1 << 20


class NodeSources:
    """``node`` is the Node as it was seen last, None before. ``folder`` has the files, None: there are none.

    ``kept``: the file that keeps what the Node said. All calls are made from one task.
    """

    def __init__(self, node: Callable[[], Node | None], *, folder: Path | None, kept: Path) -> None:
        self._node = node
        self._folder = folder
        self._path = kept
        self._kept = _read(kept)
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
        found = configchoice.chosen(self._now().labels, files)
        return self._folder / found if isinstance(found, str) else found

    def cleared(self) -> Collection[str]:
        """Return the UUIDs that the Node calls mended since the last call."""
        # The value of the last call was used by now. An agent that ends before this returns it again.
        self._keep(self._taken)
        if self._node() is None:
            return ()
        before, self._taken = self._taken, self._now()
        return nodesaid.cleared(before, self._taken)

    def _now(self) -> NodeSaid:
        node = self._node()
        if node is None:
            return self._taken or NodeSaid()
        return nodesaid.said(node.metadata.labels or {}, node.metadata.annotations or {})

    def _keep(self, what: NodeSaid | None) -> None:
        if what is None or what == self._kept:
            return
        self._kept = what
        # What is not kept costs nothing but what a restart forgets.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh = self._path.with_suffix(".new")
            fresh.write_bytes(nodesaid.encoded(what))
            fresh.replace(self._path)


def _read(path: Path) -> NodeSaid | None:
    try:
        with path.open("rb") as file:
            return nodesaid.decoded(file.read(_MOST_KEPT_BYTES))
    except OSError:
        return None
