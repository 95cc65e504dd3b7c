"""MIG slices of the machine's GPUs through NVML: which there are and can be, making and destroying them.

On emulated devices only so far.
Source: NVML API reference, Multi Instance GPU Management.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import pynvml

from gpu.mig import MOST_MEMORY_SLICES, Place, Profile
from nodeagent.core.mig_partitioning import CardSlices, NotDone, Present, Spot
from nodeagent.driver_thread import OneQuestion
from reservation.nvml import QuestionFailed, ask, ask_if_supported, ask_unless, is_cut, session

_T = TypeVar("_T")
_MOST_PLACES: Final = 64
#: Without a persistence daemon the driver takes a second or two a GPU.
_ANSWER_WITHIN_S: Final = 60.0
_PREFIX: Final = "MIG "
_NOTHING: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_FOUND,
    }
)
_SLICES_OF_NAME: Final = re.compile(r"([0-9]+)g\.", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A profile of GPU instances: the driver's number, its name, and how many compute slices it has."""

    id: int
    name: str
    slices: int
    most: int


class MigCards:
    """NVML is open for the time of a call, which blocks."""

    def read(self) -> Mapping[str, CardSlices]:
        """Return the slices of all GPUs whose MIG mode is on, by UUID. Raises NotDone.

        A GPU that does not answer is left out, so that a lost one keeps no other from being changed.
        """
        try:
            with session():
                return _all_that_answer(ask("get device count", pynvml.nvmlDeviceGetCount))
        except QuestionFailed as failure:
            raise NotDone(str(failure)) from failure

    def destroy(self, card: str, spot: Spot) -> None:
        """Destroy the compute instances of the GPU instance that is there, then itself. Raises NotDone."""
        try:
            with session():
                handle = _handle(card)
                kind, instance = _instance_at(handle, spot)
                for compute in _computes(instance, kind):
                    ask("destroy a compute instance", partial(pynvml.nvmlComputeInstanceDestroy, compute))
                ask("destroy the GPU instance", partial(pynvml.nvmlGpuInstanceDestroy, instance))
        except QuestionFailed as failure:
            raise NotDone(str(failure)) from failure

    def make(self, card: str, spot: Spot) -> None:
        """Make a GPU instance, unless it is there, and the compute instance that has all of it. Raises NotDone."""
        try:
            with session():
                handle = _handle(card)
                kind = next((each for each in _kinds(handle) if each.name == spot.profile), None)
                if kind is None:
                    raise NotDone(f"the GPU has no profile {spot.profile}")
                instance = next((one for at, one in _instances(handle, kind) if at.start == spot.start), None)
                if instance is None:
                    instance = ask("create the GPU instance", partial(_create, handle, kind, spot))
                ask(
                    "create the compute instance",
                    partial(pynvml.nvmlGpuInstanceCreateComputeInstance, instance, _whole(instance, kind)),
                )
        except QuestionFailed as failure:
            raise NotDone(str(failure)) from failure


class AskedAside:
    """The same for the agent's loop: in a thread of its own, one question at a time of all that share ``one_question``.

    Raises NotDone for a driver that does not answer in time, too. As long as a change may still come about, all calls
    do: nobody sees the GPU as it is not going to stay.
    """

    def __init__(self, cards: MigCards, one_question: OneQuestion, *, within_s: float = _ANSWER_WITHIN_S) -> None:
        self._cards = cards
        self._one = one_question
        self._within_s = within_s

    async def read(self) -> Mapping[str, CardSlices]:
        """Return the slices of all GPUs whose MIG mode is on, by UUID."""
        return await self._asked(self._cards.read)

    async def destroy(self, card: str, spot: Spot) -> None:
        """Destroy a slice."""
        await self._asked(partial(self._cards.destroy, card, spot))

    async def make(self, card: str, spot: Spot) -> None:
        """Make a slice."""
        await self._asked(partial(self._cards.make, card, spot))

    async def _asked(self, question: Callable[[], _T]) -> _T:
        try:
            return await self._one.ask(question, within_s=self._within_s)
        except TimeoutError as error:
            raise NotDone(f"the driver did not answer within {self._within_s:g} s") from error


def _handle(card: str) -> Any:
    return ask("get device handle", partial(pynvml.nvmlDeviceGetHandleByUUID, card))


def _all_that_answer(count: int) -> dict[str, CardSlices]:
    """Raises QuestionFailed if no GPU answers."""
    found: dict[str, CardSlices] = {}
    failures: list[QuestionFailed] = []
    for at in range(count):
        try:
            handle = ask("get device handle", partial(pynvml.nvmlDeviceGetHandleByIndex, at))
            if is_cut(handle):
                found[ask("get device uuid", partial(pynvml.nvmlDeviceGetUUID, handle))] = _card(handle)
        except QuestionFailed as failure:
            failures.append(failure)
    if failures and len(failures) == count:
        raise failures[0]
    return found


def _card(handle: Any) -> CardSlices:
    devices: dict[int, list[Any]] = {}
    most: int = ask("get the number of MIG devices", partial(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle))
    for index in range(most):
        question = partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        one = ask_unless(_NOTHING, "get MIG device handle", question)
        if one is not None:
            number = ask("get a slice's GPU instance", partial(pynvml.nvmlDeviceGetGpuInstanceId, one))
            devices.setdefault(int(number), []).append(one)
    kinds = list(_kinds(handle))
    present = [
        _present(kind, at, int(_info(one).id), instance=one, devices=devices)
        for kind in kinds
        for at, one in _instances(handle, kind)
    ]
    profiles = {kind.name: Profile(tuple(_places(handle, kind)), kind.most) for kind in kinds}
    return CardSlices(tuple(sorted(present, key=lambda each: each.spot)), profiles)


def _present(kind: _Kind, at: Place, number: int, *, instance: Any, devices: Mapping[int, list[Any]]) -> Present:
    own = devices.get(number, [])
    computes = list(_computes(instance, kind, only_whole=True))
    return Present(
        spot=Spot(at.start, kind.name),
        size=at.size,
        uuids=tuple(ask("get a slice's uuid", partial(pynvml.nvmlDeviceGetUUID, one)) for one in own),
        is_whole=len(computes) == len(own),
        has_process=any(_has_process(one) for one in own),
    )


def _has_process(one: Any) -> bool:
    """Whether a process uses a slice. One of which the driver does not say so is taken for used."""
    question = partial(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, one)
    found = ask_if_supported("get a slice's processes", question)
    return found is None or bool(found)


def _kinds(handle: Any) -> Iterator[_Kind]:
    """The profiles of a GPU. One without a name that tells its slices is left out: no resource is called by it."""
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        question = partial(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
        info = ask_unless(_NOTHING, "get a MIG profile", question)
        if info is None:
            continue
        name = str(info.name).removeprefix(_PREFIX)
        if _SLICES_OF_NAME.match(name):
            yield _Kind(id=int(info.id), name=name, slices=int(info.sliceCount), most=int(info.instanceCount))


def _places(handle: Any, kind: _Kind) -> Iterator[Place]:
    places, count = (pynvml.c_nvmlGpuInstancePlacement_t * _MOST_PLACES)(), ctypes.c_uint(_MOST_PLACES)
    question = partial(pynvml.nvmlDeviceGetGpuInstancePossiblePlacements, handle, kind.id, places, ctypes.byref(count))
    if ask_unless(_NOTHING, "get a MIG profile's places", question) is None:
        return
    for each in places[: count.value]:
        yield Place(int(each.start), int(each.size))


def _instances(handle: Any, kind: _Kind) -> Iterator[tuple[Place, Any]]:
    """The GPU instances of a profile, each at its place."""
    found, count = (pynvml.c_nvmlGpuInstance_t * (kind.most + MOST_MEMORY_SLICES))(), ctypes.c_uint(0)
    ask("list GPU instances", partial(pynvml.nvmlDeviceGetGpuInstances, handle, kind.id, found, ctypes.byref(count)))
    for one in found[: count.value]:
        place = _info(one).placement
        yield Place(int(place.start), int(place.size)), one


def _info(instance: Any) -> Any:
    return ask("get a GPU instance's place", partial(pynvml.nvmlGpuInstanceGetInfo, instance))


def _instance_at(handle: Any, spot: Spot) -> tuple[_Kind, Any]:
    for kind in _kinds(handle):
        if kind.name == spot.profile:
            for at, one in _instances(handle, kind):
                if at.start == spot.start:
                    return kind, one
    raise NotDone(f"no GPU instance {spot} is there")


def _create(handle: Any, kind: _Kind, spot: Spot) -> Any:
    place = next((each for each in _places(handle, kind) if each.start == spot.start), None)
    if place is None:
        raise NotDone(f"{spot} can't be made")
    wanted = pynvml.c_nvmlGpuInstancePlacement_t(start=place.start, size=place.size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, kind.id, ctypes.byref(wanted))


def _computes(instance: Any, kind: _Kind, *, only_whole: bool = False) -> Iterator[Any]:
    """The compute instances of a GPU instance; of them only one that has all of it, if that is asked."""
    for number, slices in _compute_kinds(instance):
        if only_whole and slices != kind.slices:
            continue
        found, count = (pynvml.c_nvmlComputeInstance_t * (2 * MOST_MEMORY_SLICES))(), ctypes.c_uint(0)
        ask(
            "list compute instances",
            partial(pynvml.nvmlGpuInstanceGetComputeInstances, instance, number, found, ctypes.byref(count)),
        )
        yield from found[: count.value]


def _whole(instance: Any, kind: _Kind) -> int:
    """The number of the profile of compute instances that have all of a GPU instance."""
    found = next((number for number, slices in _compute_kinds(instance) if slices == kind.slices), None)
    if found is None:
        raise NotDone(f"no compute instance can have all of {kind.name}")
    return found


def _compute_kinds(instance: Any) -> Iterator[tuple[int, int]]:
    """Each profile of compute instances that the GPU instance can have: its number, and its slices."""
    shared = pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        question = partial(pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, number, shared)
        info = ask_unless(_NOTHING, "get a profile of compute instances", question)
        if info is not None:
            yield int(info.id), int(info.sliceCount)
