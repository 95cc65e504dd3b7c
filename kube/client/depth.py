"""JSON that is nested deeper than a decoder goes, made shallow.

A user who may write any object at all may store in its ``metadata.managedFields`` what is nested thousands of levels
deep (seen: 4,000 levels, kube-apiserver 1.36.3 stores and lists them). A decoder gives up on it although nobody reads
that field, and with it on the whole page of the list. So what nests too deep is cut out before it is decoded once more.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

#: Deeper than anything that is read: what Kubernetes' own objects mean ends within twenty levels or so.
MOST_LEVELS: Final = 100

#: A string, whose brackets mean nothing, or a bracket. Possessive: an unfinished string must not be tried in all ways.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]', re.DOTALL)


def shallow(body: bytes | msgspec.Raw, most: int = MOST_LEVELS) -> bytes:
    """Return the same JSON with null for each array and object that is nested in ``most`` others. Never recurses."""
    text = bytes(body)
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKEN.finditer(text):
        match token[0]:
            case b"{" | b"[":
                if level == most:
                    kept.append(text[begin : token.start()])
                level += 1
            case b"}" | b"]":
                level -= 1
                if level == most:
                    kept.append(b"null")
                    begin = token.end()
            case _:
                pass
    kept.append(text[begin:])
    return b"".join(kept)
