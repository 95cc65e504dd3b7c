"""Starts the process of a component: its settings gathered, its module imported, its log begun."""

from __future__ import annotations

import argparse
import functools
import importlib
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

import anyio

from cli.memory import rare_collections
from cli.refusing import BadInput, refuse
from cli.settings.common import Component, Process
from cli.settings.declaring import add_options, declared, prefix
from cli.settings.gathering import gathered
from kube.client.config import ConfigError
from kube.telemetry.logevents import LogEvent, about

_log: Final = logging.getLogger(__name__)
_Commands = Any  # argparse keeps the type of sub-commands private


def add_command(commands: _Commands, name: str, settings: type[Component], what: str) -> None:
    """Add a component's sub-command."""
    variable = f"{prefix(name)}LOG_LEVEL"
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"Moorage's {name}: {what}.",
        epilog=f"Each option may be given as a variable of the environment as well ({variable}), or in a file "
        "(--config), where it stands without the dashes (log-level). docs/settings.md has them all.",
    )
    parser.set_defaults(
        run=functools.partial(_start, name, settings), options=[each.flag for each in declared(settings)]
    )
    add_options(parser, settings)


def _start(name: str, settings: type[Component], arguments: argparse.Namespace) -> int:
    """Import what the component needs, and run it until it ends or a signal says stop."""
    found = gathered(settings, name, arguments, os.environ)
    process = process_of(name)
    return start(process.run, found.settings, told=found.said)


def process_of(name: str) -> Any:
    """Import the module of a component's process.

    Modules are made once and kept: looking through them for garbage while they come took a fifth of the time.
    """
    with rare_collections():
        return importlib.import_module(f"cli.{name.replace('-', '')}process")


def start(run: Any, settings: Process, *given: Any, told: Mapping[str, str] | None = None) -> int:
    """Run a process (cli.connections.Run) until it ends or a signal says stop, with its log on stderr.

    ``told``: which settings are not the defaults. Returns the exit code. Raises BadInput when it can't be told where
    the API server is, and where the process itself does.
    """
    connections = importlib.import_module("cli.connections")
    levels = importlib.import_module("cli.logs.levels")
    log = levels.begin(settings.log_level, settings.log_format)
    if told is not None:
        _log.info("settings that are not the defaults", extra=about(LogEvent.SETTINGS, **told))
    try:
        anyio.run(connections.until_told, functools.partial(run, settings, *given), log)
    except ExceptionGroup as failed:
        return _refused(failed)
    return 0


def _refused(failed: ExceptionGroup[Exception]) -> int:
    """Raise BadInput if that is what has failed; anything else is the process's last line."""
    try:
        refuse(failed, (BadInput, ConfigError))
    except ExceptionGroup:
        _log.critical("ended by an error", exc_info=failed, extra=about(LogEvent.PROCESS_FAILED))
    return 1
