"""Other names in ResourceClaims and devices: in expressions of selectors, and in names and values of attributes.

Names of attributes, capacities and counters stay, without their domain. What drivers of NVIDIA publish stays as well,
with the selectors that read attributes of theirs alone. In all other selectors each text is a name. A selector that
looks for a part of a name does not find it any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

#: Gives a name another one.
Rename = Callable[[str], str]
#: Whether a domain is one of whose names and values nothing is hidden.
IsPlain = Callable[[str], bool]

_TOKEN: Final = re.compile(
    r"""//[^\n]*|[bBrR]{0,2}(?P<quote>\"{3}|'{3}|"|')(?P<text>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""", re.DOTALL
)
#: Amounts, numbers and versions are no names.
_AMOUNT: Final = re.compile(r"[0-9.]{1,20}([numkKMGTPE]i?)?")
_DOMAIN: Final = re.compile(r"""\[\s*[rR]?(["'])([^"'\\]*)\1\s*\]""")


def expression(text: str, rename: Rename, is_plain: IsPlain) -> str:
    """A selector (CEL) with other names; comments are left out."""
    domains = [found[1] for found in _DOMAIN.findall(text)]
    is_all_plain = bool(domains) and all(map(is_plain, domains))

    def token(found: re.Match[str]) -> str:
        quote, literal = found["quote"], found["text"]
        if quote is None:
            return ""
        is_kept = is_all_plain or is_plain(literal) or _AMOUNT.fullmatch(literal)
        return found[0] if is_kept else f"{quote}{rename(literal)}{quote}"

    return _TOKEN.sub(token, text)


def qualified(name: str, rename: Rename, is_plain: IsPlain) -> str:
    """``domain/name`` with another domain; a name of the driver's domain stays."""
    domain, slash, rest = name.rpartition("/")
    return name if not slash or is_plain(domain) else f"{rename(domain)}/{rest}"


def attributes(listed: dict[str, Any], driver: str, rename: Rename, is_plain: IsPlain) -> dict[str, Any]:
    """The attributes of a device of this driver."""
    return {
        qualified(name, rename, is_plain): value
        if is_plain(name.rpartition("/")[0] or driver)
        else {kind: rename(each) if kind == "string" else each for kind, each in value.items()}
        for name, value in listed.items()
    }
