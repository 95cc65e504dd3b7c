"""Which of two resourceVersions of one object came first (KEP-5504: they are decimal integers)."""

from __future__ import annotations


def is_older(rv: str, than: str) -> bool:
    """Whether ``rv`` came before ``than``. Versions that are no numbers can't be compared: then it is not older."""
    return rv.isascii() and rv.isdigit() and than.isascii() and than.isdigit() and int(rv) < int(than)
