"""Node agents: whether there are any, and whether each is ready (docs/node-agent.md). Nothing depends on them."""

from __future__ import annotations

from typing import Final

from cli.checks.finding import Finding, Level
from cli.checks.reader import Reader
from wire import names

_CHECK: Final = "node agents"
_PATH: Final = f"/apis/apps/v1/namespaces/{names.NODE_NAMESPACE}/daemonsets/{names.NODE_AGENT_SERVICE_ACCOUNT}"


async def check_agents(reader: Reader) -> list[Finding]:
    """Where node agents are installed, all of them are ready."""
    found = await reader.get(_PATH)
    if found is None:
        return [Finding(Level.OK, _CHECK, "not installed; the processes of reservations report their GPUs")]
    status = found.get("status") or {}
    wanted, ready = (int(status.get(key) or 0) for key in ("desiredNumberScheduled", "numberReady"))
    said = f"{ready} of {wanted} are ready"
    if ready >= wanted > 0:
        return [Finding(Level.OK, _CHECK, said)]
    if not wanted:
        do = "compare nodeAgent.nodeSelector with the labels of nodes with GPUs"
        return [Finding(Level.WARNING, _CHECK, "installed, and no node is selected for one", do)]
    do = f"look at the pods in namespace {names.NODE_NAMESPACE}; first shares on the other nodes are bound later"
    return [Finding(Level.WARNING, _CHECK, said, do)]
