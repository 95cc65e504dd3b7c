"""Bytecode for the processes that are measured, as an installed program has it.

Without it each start would compile every module anew, and that would be measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

_EVERYTHING = (
    "import cli.main, runtime.processes.scheduler, runtime.processes.binder, runtime.processes.admission, "
    "runtime.processes.nodeagent, "
    "runtime.processes.device_plugin, nodeagent.enforcement.memory_enforcer.main"
)


@contextmanager
def bytecode() -> Iterator[None]:
    """Let child processes keep their bytecode in a folder of their own, and fill it."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="moorage-bytecode-") as folder:
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        try:
            subprocess.run([sys.executable, "-c", _EVERYTHING], check=True)  # noqa: S603 - our own words
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
