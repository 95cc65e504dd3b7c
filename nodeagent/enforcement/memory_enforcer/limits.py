"""Memory limits of pods' control groups (version 2), which are found by their names, set by NVML and read back."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from nodeagent.core.enforcement.driver_limits import (
    RECHECK_LOOKS,
    Answer,
    Ask,
    Group,
    Place,
    due,
    held,
    next_due,
    remembered,
    used_bytes,
)
from nodeagent.core.enforcement.messages import Limited
from nodeagent.core.enforcement.overuse import MIB, Key, Sample
from nodeagent.processes import container_of, is_home, seat_of_path

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
    """``root``: where the host's tree is mounted, from its uppermost group on.

    A group is found by the names that kubelet and runtimes give them. Folders are listed and nothing in them is opened.
    Nobody is taken for a pod below a container: what lies there is of the container's own making. A pod's groups are
    listed again when their number changes, when it is asked for, and every ten looks.
    """

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


_NO_BINDING: Final = "the installed nvidia-ml-py has no memory limits of control groups; 13.615 and later have"
_NO_CALL: Final = "the driver can't limit memory of control groups; r615 and later can"
_NOT_SUPPORTED: Final = "the driver does not limit memory of control groups on this GPU"
_NOT_KEPT: Final = "the driver answered that a memory limit was set, and reads back another one"
_NO_RIGHT: Final = "the driver refused to set a limit; it takes CAP_SYS_ADMIN"


class Limiting:
    """``nvml``: the module pynvml, or what answers like it. It is asked by ``nvmlDeviceSetMemoryLimits_v1``.

    Paths are passed as they are in this process's own mounts: NVML opens the folder. Setting takes CAP_SYS_ADMIN,
    reading takes no right. A group is asked about when it is new, and then once in ten looks: each question costs.
    """

    def __init__(self, nvml: Any, groups: Groups) -> None:
        self._nvml = nvml
        self._has_call = hasattr(nvml, "nvmlDeviceSetMemoryLimits_v1")
        self._groups = groups
        self._there: tuple[Group, ...] = ()
        self._known: dict[Place, Answer] = {}
        self._handles: Mapping[str, Any] = {}
        self._held: frozenset[Key] = frozenset()
        #: What the last answer is about, and until which look it is the answer where nothing changes.
        self._about: object = None
        self._limited = Limited()
        self._due_look = 0
        #: Ids of containers whose groups are known.
        self._containers: frozenset[str] = frozenset()
        self._look = 0

    def turn(self, caps: Mapping[Key, int], handles: Mapping[str, Any], sample: Sample) -> Limited:
        """Bring limits to what the caps say. ``handles``: of whole cards by UUID, as the driver has them now."""
        if not self._has_call:
            return Limited(why=_NO_BINDING)
        self._look += 1
        self._handles = handles
        try:
            there = self._groups.look({pod for pod, _ in caps}, self._moved(sample, caps))
        except NoGroups as error:
            self._there, self._held, self._about = (), frozenset(), None
            return Limited(why=str(error))
        about = (there, dict(caps), frozenset(handles))
        if about != self._about or self._look >= self._due_look:
            self._about, self._there = about, there
            self._limited = self._limit(caps)
        return self._limited

    def _limit(self, caps: Mapping[Key, int]) -> Limited:
        """Ask the driver what is due."""
        there, cards = self._there, frozenset(self._handles)
        self._containers = frozenset(container_of(group.path.rpartition("/")[2]) for group in there) - {""}
        self._known = remembered(there, caps, cards, self._known)
        asks = due(there, caps, cards, self._known, look=self._look)
        for ask in asks:
            self._known[ask.place] = self._answer(ask)
        self._due_look = next_due(self._known, asks, self._look)
        self._held = held(there, caps, cards, self._known)
        return Limited(tuple(sorted(self._held)), self._why())

    def uses(self, keys: Collection[Key]) -> dict[Key, int]:
        """Return what the driver counts for these pods on these cards, as far as it holds their caps and tells."""
        found: dict[Key, int] = {}
        for key in keys:
            if key not in self._held:
                continue
            own = [group for group in self._there if group.pod_uid == key[0]]
            used = used_bytes(key, own, self._readings(own, key[1]))
            if used is not None:
                found[key] = used
        return found

    def _readings(self, groups: Collection[Group], card: str) -> dict[Place, int]:
        found: dict[Place, int] = {}
        for group in groups:
            try:
                found[group.path, card] = self._read(card, group.path)[1]
            except self._nvml.NVMLError:
                if not os.path.isdir(group.path):  # noqa: PTH112 - paths of the driver are texts
                    found[group.path, card] = 0
        return found

    def _moved(self, sample: Sample, caps: Mapping[Key, int]) -> frozenset[str]:
        """Pods with a process in a group that is not known, or that is not named as a container's."""
        return frozenset(
            one.pod_uid
            for device in sample.devices
            for one in device.processes
            if (one.pod_uid, device.uuid) in caps and one.container not in self._containers
        )

    def _answer(self, ask: Ask) -> Answer:
        """Ask the driver. Never raises what the driver says."""
        before = self._known.get(ask.place)
        is_set = before is not None and before.is_set
        try:
            hard_bytes, used = self._read(ask.card, ask.path)
            if ask.needs_set(hard_bytes):
                self._set(ask)
                is_set = True
                hard_bytes, used = self._read(ask.card, ask.path)
        except self._nvml.NVMLError as error:
            is_gone = not os.path.isdir(ask.path)  # noqa: PTH112 - as above
            return Answer(self._look, ask.cap_mib, problem=self._said(error), is_set=is_set, is_gone=is_gone)
        answer = Answer(self._look, ask.cap_mib, hard_bytes, used, is_set=is_set)
        return answer if answer.holds else replace(answer, problem=_NOT_KEPT)

    def _read(self, card: str, path: str) -> tuple[int, int]:
        """Return hard limit and use in bytes. Raises NVMLError."""
        limits = self._nvml.c_nvmlGetMemoryLimits_v1_t(os.fsencode(path))
        self._nvml.nvmlDeviceGetMemoryLimits_v1(self._handles[card], limits)
        return int(limits.hardLimit), int(limits.currentUsed)

    def _set(self, ask: Ask) -> None:
        """Raises NVMLError. A soft limit would stay added up on the groups above when the container ends."""
        limits = self._nvml.c_nvmlSetMemoryLimits_v1_t(os.fsencode(ask.path), 0, ask.cap_mib * MIB)
        self._nvml.nvmlDeviceSetMemoryLimits_v1(self._handles[ask.card], limits)

    def _why(self) -> str:
        """Why no limit can be set here, as far as anything was tried."""
        tried = [answer for answer in self._known.values() if not answer.is_gone]
        if any(answer.holds for answer in tried):
            return ""
        return next((answer.problem for answer in tried if answer.problem), "") or self._without_call()

    def _without_call(self) -> str:
        """Whether the driver has the call is told before anybody has a cap."""
        for card in self._handles:
            try:
                self._read(card, self._groups.root)
            except self._nvml.NVMLError as error:
                if error.value == self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    return _NO_CALL
            return ""
        return ""

    def _said(self, error: Any) -> str:
        said = {
            self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND: _NO_CALL,
            self._nvml.NVML_ERROR_NOT_SUPPORTED: _NOT_SUPPORTED,
            self._nvml.NVML_ERROR_NO_PERMISSION: _NO_RIGHT,
        }
        return said.get(error.value) or f"the driver did not limit memory of a control group: {error}"
