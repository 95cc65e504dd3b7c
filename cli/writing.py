"""What commands print, in the encoding of the terminal or file, and as JSON or YAML."""

from __future__ import annotations

import codecs
import io
import sys
from typing import Any, Final

_HANDLER: Final = "moorage-in-ascii"
#: Drawn by us and by rich: of the same width, or lines would wrap.
_DRAWN: Final = {"…": "~", "█": "#", "▒": "%", "░": "."}


def lets_all_through() -> None:
    r"""Have stdout write in ASCII what its encoding can't, instead of ending with a traceback.

    ``\u2026`` stands for it then, or what looks like it. That stderr does so is Python's default.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        codecs.register_error(_HANDLER, _in_ascii)
        sys.stdout.reconfigure(errors=_HANDLER)


def write(value: Any, output: str) -> None:
    """Print structs or plain values as ``json`` or ``yaml``."""
    import msgspec  # noqa: PLC0415 - main.py imports this module

    # The same when it is read again: with escapes where the encoding may not have it.
    is_unicode = codecs.lookup(sys.stdout.encoding or "utf-8").name.startswith("utf")
    encoded = msgspec.json.format(msgspec.json.encode(value))
    if output == "yaml":
        import yaml  # noqa: PLC0415 - for those who ask for it

        plain = msgspec.json.decode(encoded)
        yaml.safe_dump(plain, sys.stdout, sort_keys=False, allow_unicode=is_unicode, width=120)
    else:
        text = encoded.decode()
        sys.stdout.write((text if is_unicode else "".join(map(_escaped, text))) + "\n")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_DRAWN.get(each) or _escaped(each) for each in error.object[error.start : error.end]), error.end


def _escaped(character: str) -> str:
    """As JSON has it: in UTF-16."""
    if character.isascii():
        return character
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
