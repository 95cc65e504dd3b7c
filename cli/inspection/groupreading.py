"""Reads PodGroups, and the pods that name them, with the rights of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cli.inspection.groupviews import FoundGroups, group_of
from cli.inspection.reading import one, read_requests
from kube.client.api import Api
from kube.client.errors import NotFound
from kube.client.listing import Listing
from kube.client.resources import POD_GROUPS, PODS
from wire.core import Pod
from wire.crds.bindrequest import BindRequest
from wire.crds.podgroup import PodGroup


async def read_groups(
    api: Api, wanted: Sequence[str], *, namespaces: Sequence[str] = (), labels: str = ""
) -> FoundGroups:
    """Read these PodGroups, or all of some namespaces (() for all) or with labels, and their pods.

    Raises BadInput for one that is not there, ApiError where PodGroups or pods can't be read.
    """
    unread: list[str] = []
    groups: list[PodGroup] = []
    requests: list[BindRequest] = []
    if wanted:
        groups = [await one(api, POD_GROUPS, name, namespace=namespaces[0]) for name in dict.fromkeys(wanted)]
    else:
        for namespace in namespaces or ("",):
            groups += await _listed(api, namespace, labels, unread)
    there = {(group.metadata.namespace, group.metadata.name) for group in groups}
    pods: list[Pod] = []
    for namespace in namespaces or ("",) if groups else ():
        listing: Listing[Pod | None] = await api.digest(PODS, _of(there), namespace=namespace)
        unread += [f"pod {each.key}: {each.error}" for each in listing.undecoded]
        pods += [pod for pod in listing.items if pod is not None]
        await read_requests(api, requests, unread, namespace=namespace)
    return FoundGroups(
        groups=groups,
        pods=pods,
        requests=requests,
        asked_for=frozenset(wanted),
        unread=tuple(dict.fromkeys(unread)),
    )


async def _listed(api: Api, namespace: str, labels: str, unread: list[str]) -> Sequence[PodGroup]:
    try:
        listing = await api.list(POD_GROUPS, namespace=namespace, label_selector=labels, skip_undecodable=True)
    except NotFound:
        unread.append(f"podgroups: the cluster does not know the kind {POD_GROUPS.kind}")
        return ()
    unread += [f"podgroup {each.key}: {each.error}" for each in listing.undecoded]
    return listing.items


def _of(groups: set[tuple[str, str]]) -> Callable[[Pod], Pod | None]:
    return lambda pod: pod if group_of(pod) in groups else None
