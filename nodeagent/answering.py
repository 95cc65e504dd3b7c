"""What one resource's service answers, from the state of the node."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.core.advertising import uuid_of
from nodeagent.core.allocating import COMMON_FILES, Refused, allocate
from nodeagent.core.offering import Offering, Served
from nodeagent.core.preferring import Place, preferred
from nodeagent.core.settings import PluginSettings
from nodeagent.kubeletapi.deviceplugin import (
    AllocateRequest,
    AllocateResponse,
    ContainerResponse,
    Device,
    DeviceList,
    PreferredRequest,
    PreferredResponse,
)
from nodeagent.kubeletapi.service import Refusal


@dataclass(slots=True)
class Surroundings:
    """What is known beside the devices. ``wanted``: UUIDs that waiting reservations are opened for.

    ``withdrawn``: UUIDs of slices that are about to be destroyed.
    """

    wanted: Callable[[], Collection[str]] = tuple
    withdrawn: Callable[[], Collection[str]] = tuple
    places: Mapping[str, Place] = field(default_factory=dict)
    #: Below it the node's device files are seen.
    root: Path = Path("/")


class ResourceAnswers:
    """Answers for one resource."""

    def __init__(self, name: str, offering: Offering, around: Surroundings) -> None:
        self._name = name
        self._offering = offering
        self._around = around
        self._numbers = itertools.count()

    def devices(self) -> bytes:
        """List the devices of now; none when the resource has gone."""
        is_there = self._name in self._offering.resources
        listed = self._offering.listed(self._name, self._around.withdrawn()) if is_there else ()
        return DeviceList([Device(*each) for each in listed]).encode()

    def preferred(self, request: PreferredRequest) -> PreferredResponse:
        """Advise by policy, waiting reservations, and the places of GPUs."""
        served, settings = self._served()
        wanted = frozenset(self._around.wanted())
        chosen = (
            preferred(
                one.available,
                one.included,
                one.size,
                devices=served.by_id,
                policy=settings.policy,
                wanted=wanted,
                places=self._around.places,
            )
            for one in request.containers
        )
        return PreferredResponse(list(chosen))

    def allocate(self, request: AllocateRequest) -> AllocateResponse:
        """Give devices to containers. Raises Refusal: unknown or ill ones, or too many."""
        served, settings = self._served()
        ill, withdrawn = self._offering.ill, self._around.withdrawn()
        given = []
        for chosen in request.containers:
            # kubelet may not have read the last list yet.
            devices = [served.by_id[each] for each in chosen if each in served.by_id]
            if sick := next((one for one in devices if one.uuid in ill or one.card in ill), None):
                raise Refusal(f"invalid allocation request for {self._name!r}: {uuid_of(sick.uuid)} is ill")
            if going := next((one for one in devices if one.uuid in withdrawn), None):
                raise Refusal(f"invalid allocation request for {self._name!r}: {going.uuid} is being destroyed")
            found = allocate(
                chosen,
                resource=self._name,
                devices=served.by_id,
                settings=settings,
                present_files=self._present(settings),
                number=f"{next(self._numbers)}",
            )
            if isinstance(found, Refused):
                raise Refusal(found.text)
            given.append(
                ContainerResponse(
                    environment=found.environment,
                    mounts=found.mounts,
                    files=found.files,
                    annotations=found.annotations,
                    cdi_devices=tuple(found.cdi_devices),
                )
            )
        return AllocateResponse(given)

    def _served(self) -> tuple[Served, PluginSettings]:
        served, settings = self._offering.resources.get(self._name), self._offering.settings
        if served is None or settings is None:
            raise Refusal(f"{self._name!r} is not served any more")
        return served, settings

    def _present(self, settings: PluginSettings) -> Collection[str]:
        if not settings.pass_device_specs:
            return ()
        return [path for path in COMMON_FILES if (self._around.root / path.lstrip("/")).exists()]
