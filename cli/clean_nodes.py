"""``moorage admin clean-nodes``: remove what device plugins of other systems have left in the status of nodes.

What it runs is cli/checks/clean_nodes.py, imported when called.
"""

from __future__ import annotations

import argparse
import functools
import importlib
from typing import Any, Final

from runtime import text
from runtime.options import connection, output
from runtime.text import BadInput

_Commands = Any  # argparse keeps the type of sub-commands private

_DESCRIPTION: Final = (
    "Find resources of other systems (aliyun.com/gpu-mem, nvidia.com/gpumem, volcano.sh/vgpu-number...) that kubelet "
    "keeps at 0 in the status of nodes after their device plugin has gone, and say which can be removed. Changes "
    "nothing without --yes. What is offered, or asked for by a pod that is bound there, stays. Exit code 0: nothing is "
    "left that could not be removed; 1: something is; 2: bad input."
)


NAME: Final = "clean-nodes"
HELP: Final = "remove what other systems' device plugins left on nodes"


def add_command(commands: _Commands, **shown: str) -> None:
    """Add the sub-command; ``shown``: its help, where a list has it."""
    parser: argparse.ArgumentParser = commands.add_parser(NAME, description=_DESCRIPTION, **shown)
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="look at these nodes only")
    parser.add_argument(
        "--resource",
        action="append",
        default=[],
        metavar="NAME",
        help="a resource of another system under a name of your own, such as example.com/shared; may be repeated",
    )
    parser.add_argument("--yes", action="store_true", help="remove them; needs the right to patch nodes/status")
    parser.add_argument(
        "--settle",
        default="15s",
        metavar="DURATION",
        help="look again after so long whether a kubelet has put something back (default: 15s)",
    )
    output.add(parser, (output.TABLE, output.JSON, output.YAML), has_header=False)
    connection.add(parser)
    parser.set_defaults(run=_clean)


def _clean(arguments: argparse.Namespace) -> int:
    for resource in arguments.resource:
        _refuse_ours(resource)
    try:
        arguments.settle_s = text.seconds(arguments.settle)
    except ValueError as error:
        raise BadInput(f"--settle: {error}") from error
    import anyio  # noqa: PLC0415 - lazily, so that --help costs nothing

    process = importlib.import_module("cli.checks.clean_nodes")
    code: int = anyio.run(functools.partial(process.run, arguments))
    return code


def _refuse_ours(resource: str) -> None:
    from wire import names  # noqa: PLC0415 - as above

    is_own = resource == names.GPU_RESOURCE or resource.startswith(names.MIG_RESOURCE_PREFIX)
    if is_own or not all(resource.partition("/")[::2]):
        raise BadInput(
            f"--resource: {resource!r} is not an extended resource of another system: a domain and a name, such as "
            f"example.com/shared, other than {names.GPU_RESOURCE} and {names.MIG_RESOURCE_PREFIX}*"
        )
