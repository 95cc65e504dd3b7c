"""The manifests that a command is given: positional, ``-f`` as in kubectl, folders, ``-R``, and ``-`` for stdin."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from runtime.text import BadInput

if TYPE_CHECKING:
    from pathlib import Path

STDIN: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})


def add_arguments(parser: argparse.ArgumentParser, metavar: str = "FILE") -> None:
    """Add the arguments; ``named`` makes a list of them."""
    parser.add_argument("files", nargs="*", metavar=metavar, help="YAML or JSON file, folder of them, or - for stdin")
    parser.add_argument(
        "-f", "--filename", action="append", default=[], metavar="FILE", help=f"the same as a positional {metavar}"
    )
    parser.add_argument("-R", "--recursive", action="store_true", help="read folders within folders, too")


def named(arguments: argparse.Namespace) -> list[str]:
    """The files and folders of a command line; with ``-R`` the files of folders. Raises BadInput if there is none."""
    names = [*arguments.files, *arguments.filename]
    if not names:
        raise BadInput("no manifests given; name files or folders, or - for stdin: FILE or -f FILE")
    return [str(path) for name in names for path in expanded(name, recursive=True)] if arguments.recursive else names


def expanded(name: str, *, recursive: bool = False) -> list[Path]:
    """A file itself, or the manifests of a folder, sorted. Raises BadInput for a folder without any."""
    from pathlib import Path  # noqa: PLC0415 - so that --help costs nothing

    path = Path(name)
    if name == STDIN or not path.is_dir():
        return [path]
    entries = path.rglob("*") if recursive else path.iterdir()
    inside = sorted(entry for entry in entries if entry.suffix in _SUFFIXES and entry.is_file())
    if not inside:
        within = "" if recursive else "; -R reads folders within it"
        raise BadInput(f"{name}: a folder without manifests ({', '.join(sorted(_SUFFIXES))}){within}")
    return inside


def text_of(path: Path) -> str:
    """What a file or stdin has. Raises BadInput for what can't be read."""
    try:
        return sys.stdin.read() if str(path) == STDIN else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"{path}: {why}") from error
