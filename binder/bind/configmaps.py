"""Writing KAI's ConfigMaps: created once with their final content, never changed, never taken from somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio
import msgspec

from binder.core.configmaps import Standing, standing
from gpu.cause import Cause
from kube import books
from kube.client.api import Api
from kube.client.errors import AlreadyExists, ApiError, NotFound
from kube.client.removal import remove
from kube.client.resources import CONFIG_MAPS
from sharing.failure import Failure
from wire.core import ConfigMap

_IN_THE_WAY: Final = {
    Standing.FOREIGN: (Cause.REFUSED, "belongs to somebody else"),
    Standing.RIVAL: (Cause.DEVICE_TAKEN, "was written by another attempt of this pod"),
    Standing.NEWER: (Cause.WITHDRAWN, "was written by a newer attempt of this pod"),
}


#: Before each try. The second one follows at once: what was written for an older version is replaced.
_PAUSES_S: Final = (0.0, 0.0, 0.1, 0.4, 1.6)


class _Open(msgspec.Struct, frozen=True, gc=False):
    """Neither there as it has to be, nor refused for good. ``why``: what stands against it."""

    why: str


async def write_config_map(api: Api, namespace: str, manifest: Mapping[str, Any]) -> Failure | None:
    """Create a ConfigMap, or find it as it has to be. One of an attempt that can't bind any more is replaced.

    Safe to repeat. Returns the Failure for one that has to stay as it is, that the server refuses for good, or that can
    be neither created nor read again and again; raises ApiError when no clear answer came.
    """
    why = ""
    for pause_s in _PAUSES_S:
        await anyio.sleep(pause_s)
        answer = await _create(api, namespace, manifest)
        if not isinstance(answer, _Open):
            return answer
        why = answer.why
    return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {manifest['metadata']['name']} {why}")


async def _create(api: Api, namespace: str, manifest: Mapping[str, Any]) -> Failure | _Open | None:
    name = str(manifest["metadata"]["name"])
    try:
        await api.create(CONFIG_MAPS, manifest, namespace=namespace)
    except AlreadyExists:
        there = await _find(api, namespace, name)
        if there is None:
            return _Open("can't be created as one exists, and there is none when it is read")
        return await _meet(api, there, manifest, namespace=namespace)
    except ApiError as error:
        # NotFound: the namespace is gone, and the pod with it.
        if books.is_final(error) or isinstance(error, NotFound):
            return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {name}: {error}")
        raise
    return None


async def _meet(api: Api, there: ConfigMap, manifest: Mapping[str, Any], *, namespace: str) -> Failure | _Open | None:
    """What to do about one that is there already: one that is older is taken away."""
    found = standing(there, manifest)
    if found is Standing.OURS:
        return None
    if found is not Standing.OLDER:
        cause, why = _IN_THE_WAY[found]
        return Failure(cause=cause, detail=f"ConfigMap {there.metadata.name} {why}")
    await remove(api, CONFIG_MAPS, there.metadata.name, namespace=namespace, uid=there.metadata.uid)
    return _Open("was written by an older attempt of this pod, was deleted, and does not go away")


async def _find(api: Api, namespace: str, name: str) -> ConfigMap | None:
    try:
        return await api.get(CONFIG_MAPS, name, namespace=namespace)
    except NotFound:
        return None
