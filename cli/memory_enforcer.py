"""``moorage memory-enforcer``: end what has more GPU memory than its cap (docs/enforcement.md)."""

from __future__ import annotations

import argparse

from nodeagent.enforcement.memory_enforcer import main


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "End processes of pods that use more GPU memory than their cap. Runs on a node, beside its agent."
    )
    main.add_options(parser)
    parser.set_defaults(run=_start)


def _start(arguments: argparse.Namespace) -> int:
    from runtime import process

    return process.run("nodeagent.enforcement.memory_enforcer.main", main.written(arguments))
