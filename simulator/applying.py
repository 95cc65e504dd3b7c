"""Creates the objects of manifests in their order, as ``kubectl apply`` does, with the pods that Jobs make."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kube.client import errors
from kube.client.api import Api
from kube.client.resources import JOBS, NAMESPACES
from simulator import jobpods
from simulator.manifests import Manifest
from simulator.successors import Successors

#: Namespace and name of a Job.
_Job = tuple[str, str]


class Applying:
    """``successors`` gets the pods that a Job makes later."""

    def __init__(self, api: Api, successors: Successors) -> None:
        self._api = api
        self._successors = successors

    async def apply(self, manifests: Iterable[Manifest]) -> None:
        """Create objects in the order given.

        A namespace that is there already gets the labels and annotations of its manifest. Raises
        kube.client.errors.ApiError, with the object named in a note.
        """
        uids: dict[_Job, str] = {}
        now: list[Manifest] = []
        later: dict[_Job, list[Manifest]] = {}
        for manifest in manifests:
            (later.setdefault((manifest.namespace, manifest.job), []) if manifest.is_later else now).append(manifest)
        for manifest in now:
            try:
                await self._create(manifest, uids, later)
            except errors.ApiError as error:
                error.add_note(str(manifest))
                raise

    async def _create(
        self, manifest: Manifest, uids: dict[_Job, str], later: Mapping[_Job, Sequence[Manifest]]
    ) -> None:
        """Create an object. ``uids``: of the Jobs that were created, of which this may be one."""
        body = manifest.body
        if manifest.job:
            body = jobpods.owned(body, uids[manifest.namespace, manifest.job])
        try:
            made = await self._api.create(manifest.resource, body, namespace=manifest.namespace)
            if manifest.resource is JOBS:
                job = manifest.namespace, made.metadata.name
                uids[job] = made.metadata.uid
                self._successors.hold(made.metadata.uid, later.get(job, ()))
        except errors.AlreadyExists:
            if manifest.resource is not NAMESPACES:
                raise
            meta = manifest.body["metadata"]
            added = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
            await self._api.patch(NAMESPACES, meta["name"], {"metadata": added})
