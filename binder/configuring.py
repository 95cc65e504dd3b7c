"""Writing KAI's ConfigMaps: created once with their final content, never changed, never taken from somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from binder.core.configmaps import Standing, standing
from binder.core.failure import Failure
from gpu.cause import Cause
from kube import books
from kube.api import Api
from kube.errors import AlreadyExists, ApiError, NotFound
from kube.removal import remove
from kube.resources import CONFIG_MAPS
from wire.core import ConfigMap

_IN_THE_WAY: Final = {
    Standing.FOREIGN: (Cause.REFUSED, "belongs to somebody else"),
    Standing.RIVAL: (Cause.DEVICE_TAKEN, "was written by another attempt of this pod"),
    Standing.NEWER: (Cause.WITHDRAWN, "was written by a newer attempt of this pod"),
}


async def write_config_map(api: Api, namespace: str, manifest: Mapping[str, Any]) -> Failure | None:
    """Create a ConfigMap, or find it as it has to be. One of an attempt that can't bind any more is replaced.

    Safe to repeat. Returns the Failure for one that has to stay as it is, or that the server refuses for good; raises
    ApiError when no clear answer came.
    """
    name = str(manifest["metadata"]["name"])
    while True:
        try:
            await api.create(CONFIG_MAPS, manifest, namespace=namespace)
        except AlreadyExists:
            there = await _find(api, namespace, name)
            if there is None:
                continue
            found = standing(there, manifest)
            if found is Standing.OURS:
                return None
            if found is not Standing.OLDER:
                cause, why = _IN_THE_WAY[found]
                return Failure(cause=cause, detail=f"ConfigMap {name} {why}")
            await remove(api, CONFIG_MAPS, name, namespace=namespace, uid=there.metadata.uid)
        except ApiError as error:
            # NotFound: the namespace is gone, and the pod with it.
            if books.is_final(error) or isinstance(error, NotFound):
                return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {name}: {error}")
            raise
        else:
            return None


async def _find(api: Api, namespace: str, name: str) -> ConfigMap | None:
    try:
        return await api.get(CONFIG_MAPS, name, namespace=namespace)
    except NotFound:
        return None
