"""The components as sub-commands: ``moorage scheduler``, ``binder``, ``workloads``, ``admission``, ``node-agent``.

Each talks to the API server under its own identity: the pod's service account, a kubeconfig, or an address with a
token file (``--server``, ``--ca-file``, ``--token-file``). Its settings are declared in runtime/settings. Each has a
module for its process (runtime/processes), imported when called: so none has in memory what only another one needs
(NumPy is 14 MiB).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cli import nodeagent
from cli.starting import add_command
from runtime.settings.admission import AdmissionOptions
from runtime.settings.binder import BinderOptions
from runtime.settings.common import Component
from runtime.settings.nodeagent import NodeAgentOptions
from runtime.settings.scheduler import SchedulerOptions
from runtime.settings.workloads import WorkloadsOptions

#: The settings of each component, and what it does.
COMPONENTS: Final[Mapping[str, tuple[type[Component], str]]] = {
    "scheduler": (SchedulerOptions, "run the scheduler"),
    "binder": (BinderOptions, "run the binder, which opens GPUs and binds pods"),
    "workloads": (WorkloadsOptions, "run the controller that makes PodGroups"),
    "admission": (AdmissionOptions, "run the admission webhooks"),
    nodeagent.NAME: (NodeAgentOptions, nodeagent.WHAT),
}


def add_commands(commands: Any) -> None:
    """Add the components' sub-commands."""
    for name, (settings, what) in COMPONENTS.items():
        add_command(commands, name, settings, what)
