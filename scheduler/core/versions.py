"""Which of two resourceVersions came first. The API server's are numbers."""

from __future__ import annotations


def is_older(rv: str, known: str) -> bool:
    """Whether ``rv`` came before ``known``. Versions that are no numbers can't be compared: then it is not older."""
    if not (rv.isascii() and rv.isdigit() and known.isascii() and known.isdigit()):
        return False
    return int(rv) < int(known)
