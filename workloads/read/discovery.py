"""Where objects of a kind are found on the API server, as its discovery says.

Each group version is asked once, and again where a kind is not in its answer: its CRD may have been made since.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.resources import Resource

#: A kind that was not served is not asked for again sooner.
_AGAIN_S: Final = 5.0
#: Most group versions that are remembered: references may name any.
_MOST: Final = 1000


class Object(msgspec.Struct, frozen=True, rename="camel"):
    """An object of any kind: what rules may read of it."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = {}
    spec: Any = None


class _Served(msgspec.Struct, frozen=True):
    name: str = ""
    kind: str = ""
    namespaced: bool = False


class _ServedList(msgspec.Struct, frozen=True):
    resources: list[_Served] | None = None


class _Known(msgspec.Struct, frozen=True):
    kinds: dict[str, Resource[Object]]
    asked_at: float


class Discovery:
    """Finds resources by apiVersion and kind."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[str, _Known] = {}

    async def resource(self, api_version: str, kind: str) -> Resource[Object] | None:
        """Return where objects of a kind are, None if they are not served. Raises ApiError."""
        known = self._known.get(api_version)
        is_old = known is None or (kind not in known.kinds and known.asked_at + _AGAIN_S <= anyio.current_time())
        if known is None or is_old:
            known = _Known(await self._ask(api_version), anyio.current_time())
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[api_version] = known
        return known.kinds.get(kind)

    async def _ask(self, api_version: str) -> dict[str, Resource[Object]]:
        group, _, version = api_version.rpartition("/")
        place = Resource(
            group=group, version=version, plural="", kind="APIResourceList", namespaced=False, type=_ServedList
        )
        try:
            answer = await self._api.get(place, "")
        except NotFound:
            return {}
        return {
            each.kind: Resource(
                group=group,
                version=version,
                plural=each.name,
                kind=each.kind,
                namespaced=each.namespaced,
                type=Object,
            )
            for each in answer.resources or ()
            if "/" not in each.name
        }
