"""GPUs in MIG mode as GpuNodes show them: their slices, and what was asked for of them."""

from __future__ import annotations

from functools import cached_property

import msgspec

from gpu.mig import Profile
from gpu.node_resources import slice_resource

#: ``status.cards[].partitioning.state`` of a GpuNode.
UNDER_WAY = "underway"
DONE = "done"
REFUSED = "refused"
FAILED = "failed"


#: A GPU: the name of the node whose GpuNode shows it, and its UUID. A UUID alone is what that node's agent says.
Gpu = tuple[str, str]


class MigSlice(msgspec.Struct, frozen=True, gc=False):
    """A slice at its place. ``is_whole``: a layout can name it."""

    profile: str
    start: int
    size: int
    in_use: bool
    is_whole: bool = True

    @property
    def resource(self) -> str:
        """What pods ask for."""
        return slice_resource(self.profile)


class MigLayoutAsked(msgspec.Struct, frozen=True, gc=False):
    """An entry of ``spec.mig``: profile and first memory slice of all slices that a GPU is to have."""

    uuid: str
    attempt: str
    layout: tuple[tuple[str, int], ...]


class MigCard(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A GPU. ``is_ready``: its MIG mode is on, it is well, and its slices are known.

    ``attempt``, ``state``: of ``status.cards[].partitioning``.
    """

    uuid: str
    is_ready: bool
    profiles: dict[str, Profile] = {}
    slices: tuple[MigSlice, ...] = ()
    attempt: str = ""
    state: str = ""
    why: str = ""

    @cached_property
    def kind(self) -> bytes:
        """The same for GPUs that can be cut alike: of the same profiles, with the same slices.

        Looked up thousands of times a look, so it is made once; bytes know their hash. Agents choose names of profiles,
        so it is an encoding that no name can take apart.
        """
        return msgspec.json.encode((self.slices, self.profiles))

    @cached_property
    def unused(self) -> tuple[str, ...]:
        """The resource of each slice that is not in use."""
        return tuple(each.resource for each in self.slices if not each.in_use)


class MigNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node's GPUs, and all that its GpuNode asks for."""

    name: str
    rv: str
    cards: tuple[MigCard, ...] = ()
    asked: tuple[MigLayoutAsked, ...] = ()

    def asked_of(self, uuid: str) -> MigLayoutAsked | None:
        """What is asked of a GPU."""
        return next((each for each in self.asked if each.uuid == uuid), None)

    def is_open(self, uuid: str) -> bool:
        """Whether something is asked of a GPU that has not ended."""
        asked = self.asked_of(uuid)
        card = next((each for each in self.cards if each.uuid == uuid), None)
        return asked is not None and (card is None or asked.attempt != card.attempt or card.state == UNDER_WAY)
