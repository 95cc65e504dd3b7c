"""Whether containers are told their devices in the form that the nodes' runtime reads (docs/cdi.md).

Components don't say how they were started, but bound pods do: what was written last is what is written now.
"""

from __future__ import annotations

from typing import Final

import msgspec

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Raw, Reader
from gpu import agentlimits, cdi
from gpu.enforcement import listed
from kube.client.resources import CLUSTER_POLICIES, NODES, PODS
from wire import names
from wire.clusterpolicy import ClusterPolicy

_NAME: Final = "cdi"


async def check_cdi(reader: Reader) -> list[Finding]:
    """What the ClusterPolicy says is served, is what the last pod with a share was told, and names what nodes give."""
    said = await _policy(reader)
    if isinstance(said, Finding):
        return [said]
    told = _last_told(await reader.items(PODS.path()))
    by_cdi = cdi.is_on(said) if told is None else names.CDI_DEVICE_PREFIX in told[1]
    return [_form(said, told), *([] if by_cdi else _without_names(await reader.items(NODES.path(), if_served=True)))]


def _form(said: ClusterPolicy | None, last: tuple[str, str] | None) -> Finding:
    """``last``: the youngest pod with a share, and what it was told."""
    if cdi.has_nri_plugin(said):
        told = "NVIDIA's operator hands devices over by its NRI plugin: containers with shares see none"
        return Finding(Level.WARNING, _NAME, told, "set spec.cdi.nriPluginEnabled of the ClusterPolicy to false")
    form = "CDI names" if cdi.is_on(said) else "UUIDs"
    why = "there is no ClusterPolicy" if said is None else f"the ClusterPolicy {said.metadata.name}"
    if last is not None and (names.CDI_DEVICE_PREFIX in last[1]) is not cdi.is_on(said):
        told = f"pod {last[0]} was told devices in another form than by {form}, as is right here: {why}"
        do = "right if your nodes are set up so; else give scheduler and binder --cdi-enabled=auto"
        return Finding(Level.WARNING, _NAME, told, f"{do}, and delete such pods")
    return Finding(Level.OK, _NAME, f"containers are told devices by {form}: {why}")


def _without_names(nodes: list[Raw]) -> list[Finding]:
    """Name nodes whose annotations promise containers what CDI alone can give, where containers get UUIDs."""
    said = {str(meta["name"]): meta.get("annotations") or {} for meta in (node["metadata"] for node in nodes)}
    shows = sorted(name for name, its in said.items() if its.get(names.NODE_TENANT_VIEW) == "true")
    limits = sorted(name for name, its in said.items() if agentlimits.named(listed(its.get(names.NODE_ENFORCES)).known))
    wanting = {
        f"{names.NODE_TENANT_VIEW}=true, but devices are told by UUIDs: containers get no view on": shows,
        f"{names.NODE_ENFORCES} has limits by the agent, but devices are told by UUIDs: containers start without them "
        "on": limits,
    }
    do = "tell devices by CDI names (docs/cdi.md), or take the annotation away"
    return [Finding(Level.WARNING, _NAME, f"{text} {some_of(on)}", do) for text, on in wanting.items() if on]


async def _policy(reader: Reader) -> ClusterPolicy | Finding | None:
    """The first ClusterPolicy, None if there is none, or that nobody can read it."""
    raw = await reader.get(CLUSTER_POLICIES.path())
    first = next(iter((raw or {}).get("items") or ()), None)
    try:
        return None if first is None else msgspec.convert(first, ClusterPolicy)
    except msgspec.ValidationError as error:
        told = f"the ClusterPolicy can't be read: {error}"
        return Finding(Level.WARNING, _NAME, told, "mend it: until then devices are told by UUIDs")


def _last_told(pods: list[Raw]) -> tuple[str, str] | None:
    """The youngest bound pod with a share, and what its containers were told."""
    told = [
        (str(meta.get("creationTimestamp", "")), f"{meta['namespace']}/{meta['name']}", text)
        for meta in (pod["metadata"] for pod in pods)
        for key, text in (meta.get("annotations") or {}).items()
        if key.startswith(names.VISIBLE_DEVICES_PREFIX) and names.GRANT in meta["annotations"]
    ]
    return max(told)[1:] if told else None
