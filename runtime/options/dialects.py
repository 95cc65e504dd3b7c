"""The file of settings of dialects that an administrator gives by ``--dialects`` (docs/dialects.md).

Only what the option needs is imported at the top: ``--help`` is to come at once.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from runtime.text import BadInput

if TYPE_CHECKING:
    from gpu.dialects.settings import DialectSettings


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--dialects``."""
    parser.add_argument(
        "--dialects",
        default="",
        metavar="FILE",
        help="how requests in the words of other systems are read, as YAML or JSON (docs/dialects.md)",
    )


def read(name: str) -> DialectSettings:
    """Read the file of that name; no name is the defaults. Raises BadInput, which names all that is wrong in it."""
    from gpu.dialects.settings import DialectSettings  # noqa: PLC0415 - as above

    if not name:
        return DialectSettings()
    from pathlib import Path  # noqa: PLC0415 - as above

    from gpu.dialects import settings_file  # noqa: PLC0415
    from gpu.translation import told  # noqa: PLC0415

    try:
        text = Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise BadInput(f"{name}: {why}") from error
    found = settings_file.of_cluster(text)
    if isinstance(found, DialectSettings):
        return found
    raise BadInput(f"{name}: {'; '.join(told(mistake) for mistake in found)}")
