"""Becoming another program of the node, as ``moorage warden`` does: nothing of the command line's imports stays."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn


def run(program: str, options: Sequence[str], *, become: Callable[[str, list[str]], NoReturn] = os.execv) -> NoReturn:
    """Become ``python -m PROGRAM`` with these options; returns never.

    With the module search path as it is here: a program that was started from a folder has that folder on it.
    """
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    become(sys.executable, [sys.executable, "-m", program, *options])
