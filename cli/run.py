"""``moorage run``: start a command on a share of this machine's GPUs, without a cluster (docs/run.md).

``--list`` prints the GPUs and the commands that share them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cli.machine.books import Folder, Processes, Site, pid_of
from cli.machine.placement import Ask, Gpu, Shortfall, requested
from gpu.dialects import clearml
from gpu.translate.say import decimal
from kube.client.clock import SystemClock
from reservation.device import Unreadable
from reservation.nvml import installed
from runtime import text
from runtime.options import output
from runtime.output import write
from runtime.text import BadInput, line
from ui.tables import Cell, Look, Sheet, show
from wire.rfc3339 import rfc3339
from wire.units import SECOND_NS

FOLDER = "/run/moorage/run"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.usage = "%(prog)s [options] -- COMMAND [ARGUMENT ...]\n       %(prog)s --list [-o FORMAT]"
    parser.description = "Start a command on a share of this machine's GPUs, which is free again when the command ends."
    parser.epilog = "Exit code: the command's; 1: no driver; 2: bad input; 75: no room; 126, 127: it can't be started."
    parser.add_argument("--gpus", metavar="NUMBER", help="0.5: a part; 2: whole GPUs; 1-4: as many as are free")
    parser.add_argument("--gpu-memory", metavar="SIZE", help="memory of each GPU at least: 4Gi")
    parser.add_argument("--wait", default="0s", metavar="TIME", help="how long to wait for room (default 0s)")
    parser.add_argument("--list", action="store_true", help="list GPUs and the commands that share them")
    parser.add_argument("--folder", default=FOLDER, metavar="FOLDER", help=f"where shares are kept (default {FOLDER})")
    parser.add_argument("--beside-kubelet", action="store_true", help="start though a kubelet may give out these GPUs")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to start, with its own options"
    )
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML))
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    output.check(arguments)
    if arguments.command[:1] == ["--"]:
        del arguments.command[0]
    if arguments.list and (arguments.command or arguments.gpus or arguments.gpu_memory):
        raise BadInput("--list: not with a command, --gpus or --gpu-memory")
    if not (arguments.list or arguments.command):
        raise BadInput("COMMAND: missing; give it last, as in moorage run --gpus 0.5 -- python train.py")
    return run(arguments)


_COLUMNS: Final = ("GPU", "UUID", "MEMORY", "FREE", "SHARE", "PID", "COMMAND", "SINCE")
#: The year 3000. Any user who may write a book may write any time into it.
_LATEST_S: Final = 32_503_680_000


def print_list(gpus: Sequence[Gpu], *, form: str, has_headers: bool) -> None:
    """Print GPUs with the commands in their books, by PID."""
    listed = [_listed(gpu) for gpu in gpus]
    if form in output.FOR_PROGRAMS:
        write(listed, form)
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
            "since": rfc3339(min(max(one.since, 0), _LATEST_S) * SECOND_NS),
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


#: The first as sysexits.h has it (EX_TEMPFAIL): the same may succeed later. The others as shells have them.
_NO_ROOM, _CANNOT_START, _NOT_FOUND = 75, 126, 127
#: Where a kubelet remembers the devices of its plug-ins. NVIDIA's plug-in and its forks name them by UUID.
_CHECKPOINT: Final = Path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return only where it was not started, or list GPUs."""
    # Bad input is refused on any machine, before the GPUs are read.
    wanted = None if arguments.list else requested(arguments.gpus, arguments.gpu_memory)
    wait_s = text.of_option("--wait", arguments.wait)
    found = installed()
    if isinstance(found, Unreadable):
        return _said(f"the GPUs can't be read: {found.message}; check NVIDIA's driver with nvidia-smi", 1)
    gpus = [Gpu(at, one.uuid, one.mem_mib or 0, ("", "its MIG mode is on")[cut]) for at, (one, cut) in enumerate(found)]
    site = Site(gpus, Folder(Path(arguments.folder)), Processes())
    if wanted is None:
        print_list(site.gpus(), form=arguments.output, has_headers=not arguments.no_headers)
        return 0
    return _start(arguments, site, wanted, wait_s)


def _start(arguments: argparse.Namespace, site: Site, ask: Ask, wait_s: float) -> int:
    if not arguments.beside_kubelet and (why := why_refused()):
        raise BadInput(f"--beside-kubelet: missing; {why}")
    name: str = arguments.command[0]
    path = shutil.which(name)
    if path is None and os.sep in name and Path(name).exists():
        return _said(f"{name}: not an executable file", _CANNOT_START)
    if path is None:
        return _said(f"{name}: command not found", _NOT_FOUND)
    who = line(f"{os.environ.get('LOGNAME') or os.getuid()}/{Path(path).name}")[:64]
    try:
        Path(arguments.folder).mkdir(parents=True, exist_ok=True)
        since_s = SystemClock().now_ns() // SECOND_NS
        found = site.take(ask, who, since_s, wait_s=wait_s, tell=_said, now=time.monotonic, sleep=time.sleep)
    except TimeoutError:
        return _said("other commands wait for GPUs before this one; --wait TIME waits behind them", _NO_ROOM)
    except OSError as error:
        raise BadInput(f"--folder: {arguments.folder} can't be used: {error.strerror}; see docs/run.md") from error
    if isinstance(found, Shortfall) and found.is_for_ever:
        raise BadInput(f"--gpus, --gpu-memory: {found.shown()}")
    if isinstance(found, Shortfall):
        return _said(f"{found.shown()}; see --list, or wait with --wait TIME", _NO_ROOM)
    given = "; ".join(f"{clearml.decimal(gpu.charged_nano)} of GPU {gpu.index} ({gpu.uuid})" for gpu in found)
    _said(f"{given}; limits are not enforced")
    return _become(path, arguments.command, environment(found))


def environment(gpus: Sequence[Gpu]) -> dict[str, str]:
    """Return the variables of a command: its GPUs for CUDA, and its shares for ClearML's tools."""
    shares = ",".join(clearml.decimal(gpu.charged_nano) for gpu in gpus)
    return {"CUDA_VISIBLE_DEVICES": ",".join(gpu.uuid for gpu in gpus), "CLEARML_AGENT_GPU_FRACTIONS": shares}


def _become(path: str, command: list[str], further: dict[str, str]) -> int:
    """PID and start time stay, so entry and signals are the command's. If that fails, the entry dies with us."""
    for each in (signal.SIGPIPE, signal.SIGXFSZ):
        # Python ignores these, and a command would inherit that.
        signal.signal(each, signal.SIG_DFL)
    try:
        os.execve(path, command, {**os.environ, **further})  # noqa: S606 - the user's own command, as given
    except OSError as error:
        return _said(f"{command[0]}: {error.strerror}", _CANNOT_START)


def why_refused(checkpoint: Path = _CHECKPOINT) -> str:
    """Return why the kubelet of this machine may give out its GPUs, so that two would keep accounts; "" if not."""
    try:
        registered = json.loads(checkpoint.read_bytes())["Data"]["RegisteredDevices"] or {}
        gpus = sorted(
            name for name, ids in registered.items() if any(str(each).startswith(("GPU-", "MIG-")) for each in ids)
        )
    except FileNotFoundError:
        return ""
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return f"{checkpoint} can't be read ({error}), so a kubelet may give out the GPUs of this machine"
    return f"the kubelet of this machine gives out its GPUs as {', '.join(gpus)}" if gpus else ""


def _said(why: str, code: int = 0) -> int:
    sys.stderr.write(f"moorage: {line(why)}\n")
    return code
