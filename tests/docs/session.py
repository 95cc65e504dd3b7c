"""A shell in which the commands of a page are typed one after the other, as its reader does."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.docs.blocks import Block, Command, is_as_told
from tests.docs.pages import ROOT

#: Printed after each command, with how that ended.
_END: Final = "<<< ended with"
_ENDED: Final = re.compile(rf"\n?{_END} (\d+) >>>\n")
_PROGRAMS: Final = {
    "moorage": "from cli.main import main; raise SystemExit(main())",
    "kubectl-moorage": "from cli.main import kubectl; raise SystemExit(kubectl())",
}


def install(folder: Path) -> None:
    """Put our commands into a folder, as an installation has them."""
    for program, code in _PROGRAMS.items():
        _script(folder / program, f'exec {sys.executable} -c "{code}" "$@"')


def prepare_like_after_make_demo(folder: Path) -> None:
    """Make the environment of ``make demo`` there, which is the one that these tests run in."""
    (folder / ".venv-run" / "bin").mkdir(parents=True)
    _script(folder / ".venv-run" / "bin" / "python", f'exec {sys.executable} "$@"')


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\nexport PYTHONPATH={ROOT}\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


#: client-go logs when `kubectl wait` cancels its own watch in the middle of an event: a matter of chance.
_LOG_OF_KUBECTL: Final = re.compile(r"^[IWE][0-9]{4} [0-9:.]+ +[0-9]+ [a-z_]+\.go:[0-9]+\] .*\n", re.MULTILINE)


def type_in(
    blocks: Sequence[Block], folder: Path, environ: Mapping[str, str], *, within_s: float = 240
) -> Sequence[str]:
    """Run the commands of the blocks in one shell, and return what is not as their page says, in words."""
    commands = [(block, command) for block in blocks for command in block.commands]
    typed = "".join(_typed(block, command) for block, command in commands)
    ran = subprocess.run(
        ["/usr/bin/env", "bash", "-c", typed],
        cwd=folder,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=within_s,
        check=False,
    )
    *ended, rest = _ENDED.split(_LOG_OF_KUBECTL.sub("", ran.stdout))
    printed, codes = ended[::2], [int(code) for code in ended[1::2]]
    problems = [
        problem
        for (block, command), text, code in zip(commands, printed, codes, strict=False)
        for problem in _problems(block, command, text, code)
    ]
    if len(codes) < len(commands):
        block, command = commands[len(codes)]
        problems.append(f"{block}: {command.line}: ended with {ran.returncode} on its way:\n{rest}")
    return problems


def _typed(block: Block, command: Command) -> str:
    # A command that must do ends the shell where one of its lines does not.
    stops = "-" if block.exit_code == 0 else "+"
    return f"set {stops}euo pipefail\n{command.line}\nprintf '\\n{_END} %d >>>\\n' $?\n"


def _problems(block: Block, command: Command, printed: str, code: int) -> Sequence[str]:
    where = f"{block}: {command.line}"
    problems = [] if code == block.exit_code else [f"{where}: ended with {code}:\n{printed}"]
    if command.printed is not None and not is_as_told(command.printed, printed):
        problems.append(f"{where}: printed otherwise than its page says:\n{printed}")
    return problems
