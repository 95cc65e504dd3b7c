"""Where the documentation explains a reason: one page, one stable name for each reason."""

from __future__ import annotations

import re
from typing import Final

#: The page, in the repository and on the site.
PAGE: Final = "docs/pending.md"
_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def anchor(reason: str) -> str:
    """Return the stable name of a reason: of ``NoNodeFits`` it is ``no-node-fits``."""
    return _CAPITAL.sub("-", reason).lower()


def link(reason: str) -> str:
    """Return the page with the place that explains a reason."""
    return f"{PAGE}#{anchor(reason)}"
