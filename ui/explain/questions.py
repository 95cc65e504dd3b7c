"""Questions to a scheduler, and why one is not answered."""

from __future__ import annotations

import msgspec

from runtime.options.selection import GROUP, POD

#: What is explained by a scheduler; nodes and queues are explained by the command itself.
KINDS = (POD, GROUP)


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A pod or PodGroup, and changes that are supposed, as ``--what-if`` takes them.

    ``sees_others``: whether pods of other namespaces are named in the answer.
    """

    kind: str
    namespace: str
    name: str
    supposed: tuple[str, ...] = ()
    sees_others: bool = False


class Unanswered(Exception):
    """Raised where there is no answer, with the HTTP status that says so."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why
