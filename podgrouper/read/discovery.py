"""Where objects of a kind are found on the API server, as its discovery says.

Each group version is asked once, and again where a kind is not in its answer: its CRD may have been made since.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.errors import BadName, NotFound
from kube.client.resources import Resource

#: A kind that was not served is not asked for again sooner.
_AGAIN_S: Final = 5.0
#: Most group versions without kinds that are remembered.
_MOST_ABSENT: Final = 1000
#: The longest owner that is read. A custom resource has no more than etcd's 1.5 MiB; a longer Job, made so by control
#: characters, which are six bytes each in JSON, is reported on its pods.
OWNER_BYTES: Final = 2 << 20


class Object(msgspec.Struct, frozen=True, rename="camel"):
    """An object of any kind: what rules may read of it."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = {}
    spec: Any = None
    status: Any = None


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
    """Finds resources by apiVersion and kind. What it returns are names of the API server, never of a reference."""

    def __init__(self, api: Api) -> None:
        self._api = api
        #: Group versions that are served: as many as the API server has.
        self._served: dict[str, _Known] = {}
        #: Those that are not, of which references may name any number, the oldest first.
        self._absent: OrderedDict[str, _Known] = OrderedDict()

    async def resource(self, api_version: str, kind: str) -> Resource[Object] | None:
        """Return where objects of a kind are, None if they are not served. Raises ApiError."""
        known = self._served.get(api_version) or self._absent.get(api_version)
        if known is None or (kind not in known.kinds and known.asked_at + _AGAIN_S <= anyio.current_time()):
            known = _Known(await self._ask(api_version), anyio.current_time())
            self._keep(api_version, known)
        return known.kinds.get(kind)

    def _keep(self, api_version: str, known: _Known) -> None:
        self._served.pop(api_version, None)
        self._absent.pop(api_version, None)
        if known.kinds:
            self._served[api_version] = known
            return
        self._absent[api_version] = known
        if len(self._absent) > _MOST_ABSENT:
            self._absent.popitem(last=False)

    async def _ask(self, api_version: str) -> dict[str, Resource[Object]]:
        group, _, version = api_version.rpartition("/")
        place = Resource(
            group=group, version=version, plural="", kind="APIResourceList", namespaced=False, type=_ServedList
        )
        try:
            answer = await self._api.get(place, "")
        except (NotFound, BadName):
            return {}
        return {
            each.kind: Resource(
                group=group,
                version=version,
                plural=each.name,
                kind=each.kind,
                namespaced=each.namespaced,
                type=Object,
                most_bytes=OWNER_BYTES,
            )
            for each in answer.resources or ()
            if "/" not in each.name
        }
