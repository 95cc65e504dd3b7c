"""Taking away exactly one object, known by its UID."""

from __future__ import annotations

from typing import Any

from kube.client.api import Api
from kube.client.errors import Conflict, NotFound
from kube.client.resources import Resource


async def remove(api: Api, resource: Resource[Any], name: str, *, namespace: str, uid: str) -> None:
    """Delete the object of this name and UID; return when it is not there, or was asked to go.

    A 409 usually says that another object has the name now, but it does not say so for sure, and who is wrong here
    leaves the object behind for good: a quorum read tells. Raises ApiError when it is not settled: ask again.
    """
    try:
        await api.delete(resource, name, namespace=namespace, uid=uid)
    except NotFound:
        return
    except Conflict:
        if await _is_there(api, resource, name, namespace=namespace, uid=uid):
            raise


async def _is_there(api: Api, resource: Resource[Any], name: str, *, namespace: str, uid: str) -> bool:
    try:
        found = await api.get(resource, name, namespace=namespace)
    except NotFound:
        return False
    return bool(found.metadata.uid == uid)
