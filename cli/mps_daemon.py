"""``moorage mps-daemon``: limits of tenants by NVIDIA's MPS (docs/enforcement.md)."""

from __future__ import annotations

import argparse

from nodeagent.mps.mps_daemon import main


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = "Run NVIDIA's MPS control daemon and keep tenants' limits. Runs on a node, beside its agent."
    main.add_options(parser)
    parser.set_defaults(run=_start)


def _start(arguments: argparse.Namespace) -> int:
    from runtime import process

    return process.run("nodeagent.mps.mps_daemon.main", main.written(arguments))
