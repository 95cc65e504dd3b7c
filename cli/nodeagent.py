"""``moorage node-agent`` alone: one runs on each node, so it loads no settings of other components (12 MiB)."""

from __future__ import annotations

from typing import Any, Final

NAME: Final = "node-agent"
WHAT: Final = "run the agent of a node, which tells devices sooner"


def add_command(commands: Any) -> None:
    """Add the sub-command."""
    from cli.starting import add_command as add  # noqa: PLC0415
    from runtime.settings.nodeagent import NodeAgentOptions  # noqa: PLC0415 - lazily, as in cli/main.py

    add(commands, NAME, NodeAgentOptions, WHAT)
