"""What waiting pods are to say, and which of them have news: another reason, not another count (``Verdict.reasons``).

A cordoned node changes the counts in the verdicts of all that wait, and none of them has to be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from scheduler.core.model.plan import Explain
from scheduler.core.model.verdict import Reasons, Verdict
from scheduler.core.scheduling_queue.signatures import Shape, ShapeKey

Key = tuple[str, str]


class Shared:
    """A verdict that many have together (gang_signatures.py)."""

    __slots__ = ("verdict",)

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict


class Verdicts:
    """Verdicts by pod (UID). Pods of a shape have the verdict of the shape, all others their own."""

    __slots__ = ("_lasting", "_own", "_shapes", "_told", "_untold")

    def __init__(self) -> None:
        #: The verdict of a pod, and the PodGroup as whose member it waits.
        self._own: dict[str, tuple[Verdict | Shared, Key | None]] = {}
        #: Pods whose own verdict is theirs until they are filed again.
        self._lasting: set[str] = set()
        self._shapes: dict[str, Shape] = {}
        #: Reasons that pods were told.
        self._told: dict[str, Reasons] = {}
        self._untold: dict[str, None] = {}

    def say(
        self, uids: Iterable[str], verdict: Verdict | Shared, pod_group: Key | None = None, *, lasts: bool = False
    ) -> None:
        """These pods have this verdict from now on, of any shape.

        ``lasts``: until they are filed again (``release``), also when their shape or gang gets another verdict.
        """
        own = verdict, pod_group
        reasons = _now(verdict).reasons
        for uid in uids:
            if lasts:
                self._lasting.add(uid)
            elif uid in self._lasting:
                continue
            elif (shape := self._shapes.get(uid)) is not None:
                shape.apart.add(uid)
            self._own[uid] = own
            self._note(uid, reasons)

    def release(self, uid: str) -> None:
        """A pod is filed again: from now on it says what its shape or gang says next, or what it is given."""
        self._lasting.discard(uid)

    def say_shape(self, shape: Shape, verdict: Verdict, *, served: Set[str]) -> None:
        """All pods of a shape but those that were ``served`` have this verdict from now on.

        Costs no more than a look if the reasons are the same.
        """
        before, shape.verdict = shape.verdict, verdict
        is_news = before is None or before.reasons != verdict.reasons
        concerned = shape.uids if is_news else sorted(shape.apart & shape.uids)
        for uid in [uid for uid in concerned if uid not in served and uid not in self._lasting]:
            self._own.pop(uid, None)
            self._note(uid, verdict.reasons)
        shape.apart &= served

    def say_again(self, uids: Iterable[str]) -> None:
        """What these pods say together has changed."""
        for uid in uids:
            if (verdict := self.verdict(uid)) is not None:
                self._note(uid, verdict.reasons)

    def join(self, uid: str, shape: Shape) -> None:
        """A pod is of this shape now, and says what the shape says."""
        self._own.pop(uid, None)
        self._shapes[uid] = shape
        if shape.verdict is not None:
            self._note(uid, shape.verdict.reasons)

    def leave(self, uid: str) -> None:
        """A pod is of no shape any more."""
        self._shapes.pop(uid, None)

    def forget(self, uid: str) -> None:
        """A pod waits no more. If it comes back, the same reasons are news again."""
        for known in (self._own, self._shapes, self._told, self._untold):
            known.pop(uid, None)
        self._lasting.discard(uid)

    def _note(self, uid: str, reasons: Reasons) -> None:
        if self._told.get(uid) == reasons:
            self._untold.pop(uid, None)
        else:
            self._untold[uid] = None

    def told(self, entries: Iterable[Explain]) -> None:
        """These were passed on: they are news no more."""
        for entry in entries:
            reasons = entry.verdict.reasons
            for uid in entry.pods:
                verdict = self.verdict(uid)
                if verdict is not None:
                    self._told[uid] = reasons
                    self._note(uid, verdict.reasons)

    def verdict(self, uid: str) -> Verdict | None:
        """Why a pod waits, with the counts of today; None if nothing was decided yet."""
        own = self._own.get(uid)
        if own is not None:
            return _now(own[0])
        shape = self._shapes.get(uid)
        return shape.verdict if shape is not None else None

    def untold(self) -> Iterator[tuple[str, Verdict, Key | ShapeKey | None]]:
        """Pods (UIDs) that have news, with it, and the PodGroup as whose member each waits, else its shape."""
        for uid in self._untold:
            (_, group), shape = self._own.get(uid, (None, None)), self._shapes.get(uid)
            verdict = self.verdict(uid)
            if verdict is not None:
                yield uid, verdict, group or (None if shape is None else shape.key)

    def news(self, besides: Set[str]) -> list[Explain]:
        """What pods have to be told, one entry for all of the same verdict; nothing of those ``besides``."""
        return self._explained(uid for uid in self._untold if uid not in besides)

    def all(self) -> list[Explain]:
        """What every pod that waits says."""
        return self._explained({**dict.fromkeys(self._own), **dict.fromkeys(self._shapes)})

    def _explained(self, uids: Iterable[str]) -> list[Explain]:
        found: dict[tuple[Verdict, Key | None], list[str]] = {}
        by_shape: dict[int, tuple[Verdict, list[str]]] = {}
        for uid in uids:
            own, shape = self._own.get(uid), self._shapes.get(uid)
            if own is not None:
                found.setdefault((_now(own[0]), own[1]), []).append(uid)
            elif shape is not None and shape.verdict is not None:
                by_shape.setdefault(id(shape), (shape.verdict, []))[1].append(uid)
        for verdict, of_shape in by_shape.values():
            found.setdefault((verdict, None), []).extend(of_shape)
        return sorted(_entries(found), key=lambda entry: entry.pods)


def _now(verdict: Verdict | Shared) -> Verdict:
    return verdict.verdict if isinstance(verdict, Shared) else verdict


def _entries(found: Mapping[tuple[Verdict, Key | None], list[str]]) -> Iterator[Explain]:
    for (verdict, pod_group), uids in found.items():
        yield Explain(pods=tuple(sorted(uids)), pod_group=pod_group, verdict=verdict)
