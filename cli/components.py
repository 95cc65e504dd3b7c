"""The components as commands: ``moorage scheduler``, ``binder``, ``podgrouper``, ``admission`` and ``node-agent``.

Each reaches the API server under its own identity: the pod's service account, a kubeconfig, or an address with a token
file (``--server``, ``--ca-file``, ``--token-file``). Its settings are declared in runtime/settings. Its process is a
module of runtime/processes, imported when it starts: so none has in memory what only another one needs (NumPy is
14 MiB).
"""

from __future__ import annotations

import argparse
import functools
import importlib
import logging
import os
from collections.abc import Mapping
from typing import Any, Final

import anyio

from kube.client.config import ConfigError
from kube.telemetry.logevents import LogEvent, about
from runtime.process import rare_collections
from runtime.settings import declaration
from runtime.settings.common import Component, Process
from runtime.settings.declaration import declared, prefix
from runtime.settings.sources import gathered
from runtime.text import BadInput, refuse

_log: Final = logging.getLogger(__name__)
#: The component that explains why pods wait.
_EXPLAINS: Final = "scheduler"


def add_options(parser: argparse.ArgumentParser, name: str, settings: type[Component], what: str) -> None:
    """Add an option for each setting of a component. ``what``: its help."""
    variable = f"{prefix(name)}LOG_LEVEL"
    parser.description = f"Moorage's {name}: {what}."
    parser.epilog = (
        f"Each option may be given as a variable of the environment as well ({variable}), or in a file (--config), "
        "where it stands without the dashes (log-level). docs/reference/settings.md has them all."
    )
    parser.set_defaults(
        run=functools.partial(_start, name, settings), options=[each.flag for each in declared(settings)]
    )
    declaration.add_options(parser, settings)


def _start(name: str, settings: type[Component], arguments: argparse.Namespace) -> int:
    """Import what the component needs, and run it until it ends or a signal says stop."""
    found = gathered(settings, name, arguments, os.environ)
    process = process_of(name)
    run = functools.partial(process.run, explaining=_explaining) if name == _EXPLAINS else process.run
    return start(run, found.settings, told=found.said)


def _explaining(replica: Any, scheduler: Any, *, api: Any, listener: Any, emit: Any) -> Any:
    """Return a replica of the scheduler that also explains."""
    from ui.explain import server  # what makes certificates is for schedulers that explain

    context = server.certified(api.clock.now_ns())
    return server.explained(replica, scheduler, api=api, listener=listener, context=context, emit=emit)


def process_of(name: str) -> Any:
    """Import the module of a component's process.

    Modules are made once and kept: looking through them for garbage while they come took a fifth of the time.
    """
    with rare_collections():
        return importlib.import_module(f"runtime.processes.{name.replace('-', '')}")


def start(run: Any, settings: Process, *given: Any, told: Mapping[str, str] | None = None) -> int:
    """Run a process (runtime.connections.Run) until it ends or a signal says stop, with its log on stderr.

    ``told``: which settings are not the defaults. Returns the exit code. Raises BadInput when it can't be told where
    the API server is, and where the process itself does.
    """
    connections = importlib.import_module("runtime.connections")
    levels = importlib.import_module("runtime.logs")
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
