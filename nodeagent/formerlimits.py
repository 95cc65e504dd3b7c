"""Removes what an agent before this one gave tenants' containers, where limits by back ends were switched off.

A container that runs keeps what it has mounted, whatever becomes of the files. One that starts again is refused unless
its device is in the CDI file. So a pod keeps its device while it is in a book, and the files go after the last one. No
pod gets a device here.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

import anyio

from nodeagent import cdifiles
from nodeagent.beat import beat
from nodeagent.core import limitsfile
from nodeagent.core.lingering import Lingering

_log: Final = logging.getLogger(__name__)
#: A pod may be in no book while a lost reservation is made again. A device that was removed does not come back.
KEPT_S: Final = 600.0
_EVERY_S: Final = 10.0


class FormerLimits:
    """``tenants``: pods (UIDs) of the node's books. ``folders``: those of back ends. ``cdi``: of the CDI file."""

    def __init__(self, tenants: Callable[[], Collection[str]], *, folders: Collection[Path], cdi: Path) -> None:
        self._tenants = tenants
        self._folders = folders
        self._cdi = cdi
        self._lingering = Lingering(KEPT_S)
        self._is_first = True

    async def run(self) -> None:
        """Work until nothing is left, or cancelled. To be started when ``tenants`` are known."""
        while True:
            try:
                if self._is_over():
                    return
            except (OSError, ValueError, cdifiles.NoCdi) as error:
                _log.warning("files of former limits can't be removed: %s", error)
            await beat(_EVERY_S)

    def _is_over(self) -> bool:
        """Remove what nobody needs, and say whether that was all. Raises OSError, ValueError, NoCdi."""
        file = self._cdi / limitsfile.FILE
        content = file.read_bytes() if file.exists() else b""
        given = limitsfile.pods_in(content) if content else frozenset[str]()
        there = {*self._tenants()}
        kept = self._lingering.take(there | given if self._is_first else there, anyio.current_time())
        self._is_first = False
        if left := given & kept:
            if left != given:
                cdifiles.put(self._cdi, limitsfile.FILE, limitsfile.narrowed(content, left))
            return False
        # Nothing names a file that is removed.
        file.unlink(missing_ok=True)
        for folder in self._folders:
            if folder.is_dir():
                shutil.rmtree(folder)
                _log.info("files of former limits were removed: %s", folder)
        return True
