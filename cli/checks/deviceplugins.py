"""Device plug-ins of nodes with an agent: whose serves each node, and what ours can't serve (docs/device-plugin.md)."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Reader
from wire import names
from wire.crds.gpunode import DEFINITION, PLUGIN_OFF

_CHECK: Final = "device plug-ins"
_PATH: Final = f"/apis/{names.MOORAGE_GROUP}/{DEFINITION.version}/{DEFINITION.plural}"


async def check_device_plugins(reader: Reader) -> list[Finding]:
    """Where the agent is a node's device plug-in, it serves all that its file says."""
    agents = {
        node["metadata"]["name"]: (node.get("status") or {}).get("agent") or {}
        for node in await reader.items(_PATH, if_served=True)
    }
    counts = Counter(_mode(agent) for agent in agents.values())
    if set(counts) <= {PLUGIN_OFF}:
        return []
    said = ", ".join(f"{mode} on {count} node(s)" for mode, count in sorted(counts.items()))
    findings = [Finding(Level.OK, _CHECK, said)]
    lacking = sorted(
        f"{name} ({', '.join(str(each.get('what', '')) for each in agent['missing'])})"
        for name, agent in agents.items()
        if _mode(agent) != PLUGIN_OFF and agent.get("missing")
    )
    if lacking:
        do = "kubectl get gpunode NODE -o yaml says why, in status.agent.missing"
        findings.append(Finding(Level.WARNING, _CHECK, f"something is not served on {some_of(lacking)}", do))
    return findings


def _mode(agent: dict[str, Any]) -> str:
    return str(agent.get("pluginMode") or PLUGIN_OFF)
