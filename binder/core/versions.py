"""Order of resourceVersions of one object."""

from __future__ import annotations


def is_older(rv: str, than: str) -> bool:
    """Whether a resourceVersion of the same object is older (KEP-5504: they are decimal integers)."""
    return rv.isascii() and rv.isdigit() and than.isascii() and than.isdigit() and int(rv) < int(than)
