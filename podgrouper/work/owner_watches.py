"""Follows the owners of grouped pods, so that a workload that was edited is read again.

Only kinds of the table are watched that own a PodGroup or pods of one, or have pods wait that start alone, and only
while this replica leads. An edit raises the generation, or changes labels or annotations; a status that is written is
none.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from kube.client.api import Api
from kube.client.errors import ApiError
from kube.client.resources import Resource
from kube.lead.secondary import Kind, Secondary
from podgrouper.core.patches import said_of
from podgrouper.core.projection import LAST_APPLIED, FollowedKind
from podgrouper.read.discovery import Object
from podgrouper.read.owners import Owners
from podgrouper.watch.view import View
from wire import gangs, names
from wire.core import Named, OwnerReference

#: A kind that can't be asked for is asked for again after this time.
_AGAIN_S: Final = 60.0
_WITHOUT: Final = "a PodGroup follows an edited owner when one of its pods comes or goes"


class SeenOwner(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one while it is listed. ``edit``: a number that changes with what people edit.

    ``said``: what its annotations say of its PodGroup (``patches.said_of``). ``stated``: the same of all by which its
    pods start alone or not.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    edit: int
    said: int
    stated: int


class OwnerSink:
    """Tells the view which owners of a kind were edited."""

    def __init__(self, kind: FollowedKind, view: View, owners: Owners) -> None:
        self._api_version, self._kind = kind
        self._view = view
        self._owners = owners
        #: UID -> its edit, and what it stated, as seen last.
        self._edits: dict[str, tuple[int, int]] = {}

    def keep(self, obj: Named) -> SeenOwner:
        """What this sink keeps of an owner."""
        meta = obj.metadata
        annotations = {key: text for key, text in (meta.annotations or {}).items() if key != LAST_APPLIED}
        said = msgspec.json.encode((meta.generation, meta.labels or {}, annotations), order="sorted")
        stated = hash((gangs.stated(meta.labels, annotations), annotations.get(names.SKIP_POD_GROUPER)))
        return SeenOwner(meta.namespace, meta.name, meta.uid, meta.generation, hash(said), said_of(annotations), stated)

    async def replace(self, kept: Sequence[SeenOwner]) -> None:
        """Take a list. Of those seen first that were edited before, nobody knows whether that was followed.

        No generation tells of edited annotations; the PodGroup does.
        """
        listed = {owner.uid for owner in kept}
        self._edits = {uid: edit for uid, edit in self._edits.items() if uid in listed}
        for owner in kept:
            is_followed = owner.generation <= 1 and self._view.is_followed(owner.uid, owner.said)
            self._take(owner, was_edited=not is_followed or self._view.has_ungrouped(owner.uid))

    def upsert(self, obj: Named) -> None:
        """Take an owner: one that is new has no pods yet."""
        self._take(self.keep(obj), was_edited=False)

    def delete(self, obj: Named) -> None:
        """Take an owner's last state: its PodGroup goes with it."""
        self._edits.pop(obj.metadata.uid, None)

    def in_step(self, is_in_step: bool) -> None:
        """Take whether changes come in: a list tells what was missed."""

    def _take(self, owner: SeenOwner, *, was_edited: bool) -> None:
        before = self._edits.get(owner.uid)
        self._edits[owner.uid] = owner.edit, owner.stated
        if was_edited if before is None else before[0] != owner.edit:
            reference = OwnerReference(api_version=self._api_version, kind=self._kind, name=owner.name, uid=owner.uid)
            self._owners.renew([reference], owner.namespace)
            states_else = before is None or before[1] != owner.stated
            self._view.owner_changed(reference, owner.namespace, states_else=states_else)


class OwnerWatches:
    """Watches the kinds that the view names, each from when it is named."""

    def __init__(self, api: Api, *, view: View, owners: Owners, rng: random.Random) -> None:
        self._api = api
        self._view = view
        self._owners = owners
        self._rng = rng
        self._followed: set[FollowedKind] = set()

    async def run(self) -> None:
        """Follow until cancelled."""
        self._followed.clear()
        async with anyio.create_task_group() as tasks:
            while True:
                for kind in [kind for kind in self._view.kinds if kind not in self._followed]:
                    self._followed.add(kind)
                    tasks.start_soon(self._follow, kind)
                await self._view.on_kind.wait()

    async def _follow(self, kind: FollowedKind) -> None:
        resource = await self._found(kind)
        if resource is None:
            # A reference may name any version: one that is not there keeps no place from one that is.
            self._followed.discard(kind)
            self._view.kind_is_not_served(kind)
        elif resource.namespaced:
            watched = Resource(
                group=resource.group,
                version=resource.version,
                plural=resource.plural,
                kind=resource.kind,
                namespaced=True,
                type=Named,
                metadata_only=True,
            )
            await Secondary(
                self._api, [Kind(watched, OwnerSink(kind, self._view, self._owners), _WITHOUT)], rng=self._rng
            ).run()

    async def _found(self, kind: FollowedKind) -> Resource[Object] | None:
        while True:
            try:
                return await self._owners.resource(*kind)
            except ApiError:
                await anyio.sleep(_AGAIN_S)
