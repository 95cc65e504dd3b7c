"""The commands of ``moorage``: the name, the help and the module of each, and the parsers made of them.

A module is imported when its options are needed: to run the command, for its help, or to complete its words. Imports
take most of the time until a command answers (docs/reference/benchmarks.md), so ``moorage --help`` imports none of
them, and a module of a command imports at its top what its options need; modules that load slowly are imported when it
runs.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, NoReturn

from runtime.text import line
from runtime.version import VERSION

_BAD_INPUT: Final = 2


class Command(NamedTuple):
    """A command whose options ``add_options(parser)`` of a module adds."""

    name: str
    help: str
    module: str

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Import the module and add its options."""
        importlib.import_module(self.module).add_options(parser)


class Component(NamedTuple):
    """A process of a cluster, whose options are its settings. ``options``: their module and class."""

    name: str
    help: str
    options: tuple[str, str]

    def settings(self) -> Any:
        """Import the class of the settings."""
        module, name = self.options
        return getattr(importlib.import_module(f"runtime.settings.{module}"), name)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add an option for each setting."""
        importlib.import_module("cli.components").add_options(parser, self.name, self.settings(), self.help)


ADMIN: Final = (
    Command("check", "see whether a cluster is as safe as it should be", "cli.check"),
    Command("check-kai", "see what would differ if Moorage replaced KAI Scheduler", "cli.check_kai"),
    Command("clean-nodes", "remove what other systems' device plugins left on nodes", "cli.clean_nodes"),
    Command("upgrade-crds", "bring the cluster's CRDs to this version", "cli.upgrade_crds"),
)
#: Those of ``kubectl moorage``: what reads a cluster or manifests.
PLUGIN: Final = (
    Command("inspect", "show who is on which GPU, what is free, and why pods wait", "cli.inspect"),
    Command("explain", "explain why a pod waits and what would let it start", "cli.explain"),
    Command("snapshot", "print what the scheduler reads of a cluster, for simulate", "cli.snapshot"),
    Command("top", "show GPUs, queues and pods that wait, live", "cli.top"),
    Command("translate", "show the GPU requests of manifests, in any dialect", "cli.translate"),
    Command("lint", "check manifests for refused requests and likely mistakes", "cli.lint"),
    Command("simulate", "show what manifests would do on a cluster, simulated or real", "cli.simulate"),
    Command("version", "print versions of this program and a cluster's components", "cli.version"),
    Command("ui", "serve a web page that shows the GPUs of a cluster, live", "cli.ui"),
    Command("admin", "check, clean and upgrade a cluster", "cli.admin"),
)
COMPONENTS: Final = (
    Component("scheduler", "run the scheduler", ("scheduler", "SchedulerOptions")),
    Component("binder", "run the binder, which opens GPUs and binds pods", ("controllers", "BinderOptions")),
    Component("podgrouper", "run the controller that makes PodGroups", ("controllers", "PodgrouperOptions")),
    Component("admission", "run the admission webhooks", ("admission", "AdmissionOptions")),
    Component("node-agent", "run the agent of a GPU node", ("nodeagent", "NodeAgentOptions")),
)
#: Those of ``moorage``, in the order of its help.
PROGRAM: Final = (
    *PLUGIN,
    Command("run", "start a command on a share of this machine's GPUs", "cli.run"),
    Command("demo", "watch the examples on simulated GPUs", "cli.demo"),
    Command("nodes", "add simulated GPU nodes to a cluster", "cli.nodes"),
    *COMPONENTS,
    Command("memory-enforcer", "end processes that pass their GPU memory cap", "cli.memory_enforcer"),
    Command("mps-daemon", "run NVIDIA's MPS daemon and keep tenants' limits", "cli.mps_daemon"),
)


class Parser(argparse.ArgumentParser):
    """Refuses in one line. The parser of a command adds its options when it is first used.

    ``command``: whose options those are; None: all of them are added by the maker.
    """

    def __init__(self, *given: Any, command: Command | Component | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._command = command

    def filled(self) -> Parser:
        """Return this parser with all of its options."""
        command, self._command = self._command, None
        if command is not None:
            command.add_options(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # type: ignore[explicit-override] # as below
        """Parse, with all options."""
        self.filled()
        return super().parse_known_args(args, namespace)

    def _check_value(self, action: argparse.Action, value: str) -> None:  # type: ignore[explicit-override] # as below
        """Refuse an unknown command, and name those that help lists: argparse names old ones as well."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001 - no other name
            raise argparse.ArgumentError(None, refused(value, shown(action)))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:  # type: ignore[explicit-override] # typing_extensions takes 20 ms
        """Print the message in one line, and exit."""
        self.exit(_BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def program_parser() -> Parser:
    """Return the parser of ``moorage``."""
    return _parser("moorage", "A Kubernetes scheduler for GPU batch work.", PROGRAM)


def plugin_parser() -> Parser:
    """Return the parser of ``kubectl moorage``."""
    return _parser("kubectl moorage", "Show the GPUs of a cluster, and check manifests.", PLUGIN)


def _parser(prog: str, description: str, listed: Sequence[Command | Component]) -> Parser:
    """Return a parser of commands. Each of ``admin`` is also a command of its own that no list shows."""
    parser = Parser(prog=prog, description=description)
    parser.add_argument("-v", "--verbose", action="store_true", help="log what happens to stderr")
    parser.add_argument("--version", action="version", version=f"moorage {VERSION}", help="print the version and exit")
    parser.set_defaults(logs=True)
    commands = add_commands(parser, listed, required=True)
    for each in ADMIN:
        commands.add_parser(each.name, command=each)
    return parser


def add_commands(
    parser: argparse.ArgumentParser, listed: Sequence[Command | Component], *, required: bool
) -> argparse._SubParsersAction[Parser]:
    """Add commands that help lists."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=required, parser_class=Parser)
    for each in listed:
        commands.add_parser(each.name, help=each.help, command=each)
    return commands


def shown(commands: argparse._SubParsersAction[Any]) -> list[str]:
    """Return the names that help lists, in its order."""
    return [each.dest for each in commands._get_subactions()]  # noqa: SLF001 - argparse lists them nowhere else


def refused(name: str, known: Sequence[str]) -> str:
    """Return why an unknown command is refused: with the one that was perhaps meant, or with all of them."""
    from difflib import get_close_matches  # only for unknown commands

    near = get_close_matches(name, known, n=1)
    return f"{line(name)}: no such command; " + (f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}")
