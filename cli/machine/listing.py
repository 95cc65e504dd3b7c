"""Print the GPUs of a machine and the commands that share them: ``moorage run --list``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cli import writing
from cli.inspection.sheets import Cell, Look, Sheet, show
from cli.machine.placing import Gpu
from cli.machine.processes import pid_of
from cli.options import output
from gpu.dialects.sayings import decimal
from wire.rfc3339 import rfc3339

_COLUMNS: Final = ("GPU", "UUID", "MEMORY", "FREE", "SHARE", "PID", "COMMAND", "SINCE")
#: The year 3000. Anybody who may write a book may write any time into it.
_LATEST_S: Final = 32_503_680_000


def print_list(gpus: Sequence[Gpu], *, form: str, has_headers: bool) -> None:
    """Print GPUs with the commands in their books, by PID."""
    listed = [_listed(gpu) for gpu in gpus]
    if form in output.FOR_PROGRAMS:
        writing.write(listed, form)
        return
    rows = [[Cell(text) for text in row] for gpu in listed for row in _rows(gpu)]
    look = Look(is_wide=form == output.WIDE, has_headers=has_headers)
    show([Sheet(columns=_COLUMNS, rows=rows, spare=("UUID", "SINCE"), folds=("COMMAND",))], look=look)


def _listed(gpu: Gpu) -> dict[str, Any]:
    """What programs get: exact numbers, and no command of a GPU that is not used. ``memMiB`` 0: not known."""
    commands = [
        {
            "pid": pid_of(key),
            "command": one.pod,
            "nano": one.nano,
            "since": rfc3339(min(max(one.since, 0), _LATEST_S) * 10**9),
        }
        for key, one in sorted(gpu.book.entries.items(), key=lambda item: pid_of(item[0]))
    ]
    about = {"index": gpu.index, "uuid": gpu.uuid, "memMiB": gpu.mem_mib, "whyClosed": gpu.why_closed}
    return {**about, "freeNano": 0 if gpu.why_closed else gpu.book.free_nano, "commands": commands}


def _rows(gpu: dict[str, Any]) -> list[list[str]]:
    memory = f"{gpu['memMiB']} MiB" if gpu["memMiB"] else "-"
    about = [str(gpu["index"]), gpu["uuid"], memory, decimal(gpu["freeNano"])]
    if not gpu["commands"]:
        return [[*about, "-", "-", gpu["whyClosed"] or "-", "-"]]
    return [[*about, decimal(one["nano"]), str(one["pid"]), one["command"], one["since"]] for one in gpu["commands"]]
