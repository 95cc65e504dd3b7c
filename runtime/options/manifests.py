"""Options of commands that read manifests: files, ``-f``, folders, ``-R``, ``-`` for stdin, and ``--dialects``.

Only what the options need is imported at the top: ``--help`` loads no more.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Final

from runtime.text import BadInput

if TYPE_CHECKING:
    from gpu.dialects.settings import DialectSettings


def add_dialects(parser: argparse.ArgumentParser) -> None:
    """Add ``--dialects``."""
    parser.add_argument(
        "--dialects",
        default="",
        metavar="FILE",
        help="how requests in the words of other systems are read, as YAML or JSON (docs/dialects.md)",
    )


def dialects_of(name: str) -> DialectSettings:
    """Read the file of that name; no name is the defaults. Raises BadInput, which names all that is wrong in it."""
    from gpu.dialects.settings import DialectSettings

    if not name:
        return DialectSettings()
    from pathlib import Path

    from gpu.dialects import settings_file
    from gpu.translation import told

    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"{name}: {why}") from error
    found = settings_file.of_cluster(text)
    if isinstance(found, DialectSettings):
        return found
    raise BadInput(f"{name}: {'; '.join(told(mistake) for mistake in found)}")


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
    from pathlib import Path

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
