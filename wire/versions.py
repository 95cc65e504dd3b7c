"""What two resourceVersions say of each other (KEP-5504: they are decimal integers)."""

from __future__ import annotations

from typing import Final

#: At 10,000 writes a second a server takes three hours for this number; a watch brings a version once a minute. A
#: restored etcd goes on 1,000,000,000 above its snapshot (``--bump-revision``, as its documentation has it).
_JUMP: Final = 100_000_000


def is_older(rv: str, than: str) -> bool:
    """Whether ``rv`` came before ``than``. Versions that are no numbers can't be compared: then it is not older."""
    return rv.isascii() and rv.isdigit() and than.isascii() and than.isdigit() and int(rv) < int(than)


def has_jumped(rv: str, since: str) -> bool:
    """Whether ``rv`` is further from ``since`` than a server can write: it was restored in between."""
    return rv.isascii() and rv.isdigit() and since.isascii() and since.isdigit() and int(rv) - int(since) >= _JUMP
