"""Finds the control groups of pods in the tree of version 2, by the names that kubelet and runtimes give them.

Folders are listed and nothing in them is opened. Nobody is taken for a pod below a container: what lies there is of the
container's own making. A pod's groups are listed again when their number changes, when it is asked for, and every ten
looks.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from nodeagent.core.cgroups import container_of, is_home, seat_of_path
from nodeagent.core.limits import RECHECK_LOOKS, Group

ROOT: Final = "/sys/fs/cgroup"
#: kubelet's own group is at most at this depth (``--cgroup-root``). It is looked for in at most this number of groups.
_DEEPEST: Final = 4
_MOST_SEARCHED: Final = 4_096
#: Looks between two searches for kubelet's own group.
_LOOKS_A_SEARCH: Final = 60
#: Groups of one pod: a container that may make groups beside its own could make any number.
MOST_OF_POD: Final = 64
#: Users make groups below this one as they like.
_OF_USERS: Final = "user.slice"


class NoGroups(Exception):
    """Raised where there is no tree of version 2; the message says where it was looked for."""


@dataclass(slots=True)
class _Pod:
    """What was found of a pod's group. ``links``: of its folder, which count the groups in it."""

    path: str
    links: int
    look: int
    groups: tuple[Group, ...]


class Groups:
    """``root``: where the host's tree is mounted, from its uppermost group on."""

    def __init__(self, root: str = ROOT) -> None:
        self.root = root.rstrip("/")
        self._homes: tuple[str, ...] = ()
        self._pods: dict[str, _Pod] = {}
        #: Whose groups those in kubelet's own are, by path; "": no pod's.
        self._owners: dict[str, str] = {}
        self._look = 0
        self._searched = -_LOOKS_A_SEARCH

    def look(self, pods: Collection[str], changed: Collection[str] = ()) -> tuple[Group, ...]:
        """Return the groups of these pods; ``changed`` ones are listed again. Raises NoGroups."""
        self._look += 1
        if not os.path.exists(f"{self.root}/cgroup.controllers"):  # noqa: PTH110 - of each look
            raise NoGroups(f"control groups of version 2 are not mounted at {self.root}")
        if self._look - self._searched >= (_LOOKS_A_SEARCH if self._homes else RECHECK_LOOKS):
            self._homes, self._searched = tuple(self._search()), self._look
        found: dict[str, str] = {}
        for pod, path in self._find(frozenset(pods)):
            # Of two the uppermost, which is kubelet's.
            found.setdefault(pod, path)
        self._pods = {pod: self._pod(pod, path, is_changed=pod in changed) for pod, path in sorted(found.items())}
        return tuple(group for pod in self._pods.values() for group in pod.groups)

    def _search(self) -> Iterator[str]:
        """Look for the groups in which kubelet makes those of pods, the uppermost ones first."""
        left = deque([("", 0)])
        searched = 0
        while left and searched < _MOST_SEARCHED:
            path, depth = left.popleft()
            searched += 1
            is_found = is_home(path)
            if is_found:
                yield path
            if depth == _DEEPEST:
                continue
            for name in self._folders(path):
                below = f"{path}/{name}"
                if name == _OF_USERS or container_of(name) or seat_of_path(below) is not None:
                    continue
                # In kubelet's own groups there are pods, and those of its classes of service.
                if not is_found or is_home(below):
                    left.append((below, depth + 1))

    def _find(self, pods: Collection[str]) -> Iterator[tuple[str, str]]:
        paths = [f"{home}/{name}" for home in self._homes for name in self._folders(home)]
        before = self._owners
        self._owners = {path: before[path] if path in before else _owner(path) for path in paths}
        for path, pod in self._owners.items():
            if pod in pods:
                yield pod, path

    def _pod(self, pod: str, path: str, *, is_changed: bool) -> _Pod:
        known, links = self._pods.get(pod), self._links(path)
        is_known = known is not None and (known.path, known.links) == (path, links) and not is_changed
        if known is not None and is_known and self._look - known.look < RECHECK_LOOKS:
            return known
        names, full = sorted(self._folders(path)), self.root + path
        own = Group(
            pod,
            full,
            is_pod=True,
            nests=os.path.exists(f"{full}/dmem.max"),  # noqa: PTH110 - of each look
            has_more=len(names) > MOST_OF_POD,
        )
        below = (Group(pod, f"{full}/{name}") for name in names[:MOST_OF_POD])
        # A container's own limit, which NVIDIA's hook sets as well, comes first: else it may read back as the pod's.
        return _Pod(path, links, self._look, (*below, own))

    def _links(self, path: str) -> int:
        try:
            return os.stat(self.root + path).st_nlink  # noqa: PTH116 - of each look
        except OSError:
            return 0

    def _folders(self, path: str) -> list[str]:
        """Names of the groups in a group; none where it was removed."""
        try:
            with os.scandir(self.root + path) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            return []


def _owner(path: str) -> str:
    seat = seat_of_path(path)
    return "" if seat is None else seat.pod_uid
