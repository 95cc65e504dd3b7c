"""What nodes say that they enforce: a word that nobody knows would be a limit that nobody counts on."""

from __future__ import annotations

from typing import Final

from cli.checks.finding import Finding, Level, some_of
from cli.checks.reader import Reader
from gpu import enforcement
from wire import names

_NAME: Final = "enforcement"
_BEHIND: Final = f"/hard, /after, /soft, {' or '.join(f'={one}' for one in enforcement.AGENTS)}"


async def check_enforcement(reader: Reader) -> list[Finding]:
    """Annotations of nodes are understood (gpu/enforcement.py)."""
    nodes = await reader.items("/api/v1/nodes")
    said = {
        str(node["metadata"]["name"]): enforcement.listed(text)
        for node in nodes
        if (text := (node["metadata"].get("annotations") or {}).get(names.NODE_ENFORCES)) is not None
    }
    unclear = sorted(name for name, listed in said.items() if listed.unknown)
    if unclear:
        words = some_of(sorted({word for listed in said.values() for word in listed.unknown}))
        told = f"{names.NODE_ENFORCES} says what nobody understands ({words}) on {some_of(unclear)}: it is not read"
        return [
            Finding(
                Level.WARNING,
                _NAME,
                told,
                f"use {', '.join(enforcement.WORDS)}, joined by commas, and {_BEHIND} behind a cap",
            )
        ]
    return [Finding(Level.OK, _NAME, f"{len(said)} of {len(nodes)} nodes say what they enforce, in words that we know")]
