"""What an API server stores of manifests: after admission, beside objects that were there before.

Nothing else runs on it, neither nodes nor scheduler, so pods wait there as they do on a cluster before their first
decision. Claims of templates are made, as kube-controller-manager does it before a decision.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import anyio

from admission.settings import Settings as AdmissionSettings
from kube.client import errors
from kube.client.api import Api
from kube.client.clock import Clock
from kube.client.resources import (
    CSI_NODES,
    DEVICE_CLASSES,
    JOBS,
    NAMESPACES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    QUEUES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    TOPOLOGIES,
    Resource,
)
from kube.client.retry import Retry
from simulator import installation
from simulator.apiserver.server import MemoryApiServer
from simulator.apply import Applying, Successors
from simulator.components import start_admission
from simulator.controllers.disruption import KubeControllers
from simulator.manifests import Manifest
from simulator.replicas import is_ours

#: Objects that decisions read.
READ: Final[tuple[Resource[Any], ...]] = (
    *(NAMESPACES, QUEUES, TOPOLOGIES, STORAGE_CLASSES, CSI_NODES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS),
    *(DEVICE_CLASSES, RESOURCE_SLICES, RESOURCE_CLAIMS, POD_GROUPS, JOBS, PODS),
)
#: After so long in virtual time claims are made.
_MADE_S: Final = 10.0

#: New objects by the plural of their kind.
Stored = Mapping[str, Sequence[Any]]


async def submit(
    objects: Sequence[Manifest], *, there: Sequence[Manifest], clock: Clock, admission: AdmissionSettings
) -> Stored | errors.ApiError:
    """Create objects and return what is stored of them, or why one is refused, with the object in a note.

    ``there``: objects that exist before; admission does not see them.
    """

    def rng(purpose: str) -> random.Random:
        return random.Random(f"submitted/{purpose}")

    server = MemoryApiServer(clock=clock, rng=rng("server"), auto_namespaces=True)
    api = Api(server.transport("user"), retry=Retry(rng("user")))
    found: Stored | errors.ApiError = {}
    async with anyio.create_task_group() as group:
        await group.start(server.run)
        try:
            await installation.seed(api)
            await Applying(api, Successors(api)).apply(there)
            before = {plural: {_key(each) for each in found} for plural, found in (await _stored(api)).items()}

            def begin(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
                group.start_soon(run)

            KubeControllers(server, clock=clock, pods=list, rng=rng, begin=begin)
            await start_admission(server, group, settings=admission, checks_queues=True, rng=rng, is_ours=is_ours)
            await Applying(api, Successors(api)).apply(objects)
            await anyio.sleep(_MADE_S)
            after = await _stored(api)
            found = {plural: [each for each in after[plural] if _key(each) not in before[plural]] for plural in after}
        except errors.ApiError as error:
            found = error
        group.cancel_scope.cancel()
    return found


async def _stored(api: Api) -> Stored:
    return {resource.plural: (await api.list(resource)).items for resource in READ}


def _key(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
