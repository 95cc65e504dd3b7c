"""Which names can be one segment of a URL's path: what client-go's IsValidPathSegmentName takes, as API servers do."""

from __future__ import annotations

from typing import Final

#: In the words of a refusal.
ALLOWED: Final = "a name other than . and .., without / and %"
_DOTS: Final = frozenset({".", ".."})


def is_path_segment(name: str) -> bool:
    """Whether a name stays one segment. Tenants write names that no API server checks: ``ownerReferences[].name``."""
    return name not in _DOTS and "/" not in name and "%" not in name
