"""Writing KAI's ConfigMaps: created once with their final content, never changed, never taken from somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binder.core.failure import Failure
from gpu.cause import Cause
from kube import books
from kube.api import Api
from kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from kube.resources import CONFIG_MAPS
from wire.core import ConfigMap


async def write_config_map(api: Api, namespace: str, manifest: Mapping[str, Any]) -> Failure | None:
    """Create a ConfigMap, or find it as it has to be. One of an earlier attempt of this pod is replaced.

    Safe to repeat. Returns the Failure for a foreign one, or for one that the server refuses for good; raises
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
            if not _is_of(there, manifest["metadata"]["ownerReferences"][0]["uid"]):
                return Failure(cause=Cause.REFUSED, detail=f"ConfigMap {name} belongs to somebody else")
            if (there.data or {}) == manifest["data"] and there.immutable:
                return None
            await _remove(api, namespace, name, uid=there.metadata.uid)
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


async def _remove(api: Api, namespace: str, name: str, *, uid: str) -> None:
    try:
        await api.delete(CONFIG_MAPS, name, namespace=namespace, uid=uid)
    except (NotFound, Conflict):
        return  # gone, or another of that name: creating it tells


def _is_of(there: ConfigMap, pod_uid: str) -> bool:
    owners = there.metadata.owner_references or ()
    return [owner.uid for owner in owners] == [pod_uid]
