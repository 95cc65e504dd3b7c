"""``moorage``: one entry point with sub-commands. What a sub-command needs is imported when it is called.

A user waits for imports more than for anything else (docs/benchmarks.md): what is imported at the top of this
module, and of the commands that ask, is what argparse needs, and no more.

Names of sub-commands as people see them: those that help lists, without the old names that still work.
"""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from cli import admin, explain, inspect, nodeagent, offline, run, snapshot, top, ui, version
from cli.simulation import options
from runtime.options import dialects, manifests, output
from runtime.output import lets_all_through
from runtime.text import BadInput, line


def shown(commands: argparse._SubParsersAction[Any]) -> list[str]:
    """Return the names that help lists, in its order."""
    return [each.dest for each in commands._get_subactions()]  # noqa: SLF001 - argparse lists them nowhere else


def refused(name: str, known: Sequence[str]) -> str:
    """Say that there is no command of a name, and which one was perhaps meant, or which there are."""
    from difflib import get_close_matches  # noqa: PLC0415 - for those who are wrong

    near = get_close_matches(name, known, n=1)
    return f"{line(name)}: no such command; " + (f"did you mean {near[0]}?" if near else f"allowed: {', '.join(known)}")


_BAD_INPUT = 2
_INTERRUPTED = 130
#: As of a program that SIGPIPE has ended.
_READER_GONE = 141
#: As sysexits.h has it (EX_IOERR): what the command has found is lost, so neither 0 nor 1 would be true.
_UNWRITTEN = 74
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as everything else here does."""

    def _check_value(self, action: argparse.Action, value: str) -> None:  # type: ignore[explicit-override] # as below
        """Refuse a command that is not there, and name those that help lists: argparse names old ones as well."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:  # noqa: SLF001 - no other name
            raise argparse.ArgumentError(None, refused(value, shown(action)))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:  # type: ignore[explicit-override] # typing_extensions takes 20 ms
        self.exit(_BAD_INPUT, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command and return the exit code: 0 well, 1 not well, 2 bad input."""
    if argv is None:
        _leave_garbage()
    given = sys.argv[1:] if argv is None else argv
    return _run(_parser, given)


def kubectl() -> int:
    """Run ``kubectl moorage``: the commands that ask, by the name under which kubectl finds them."""
    _leave_garbage()
    return _run(plugin_parser, sys.argv[1:])


def _leave_garbage() -> None:
    """Have the process end without a last look for cyclic garbage, which takes a fifth of what ``inspect`` takes.

    Files are closed and output is written as ever; the kernel takes the memory.
    """
    atexit.register(gc.freeze)


def plugin_parser(given: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Know the commands of ``kubectl moorage``: what reads a cluster or manifests. ``given``: the words behind it."""
    parser = _Parser(prog="kubectl moorage", description="Show the GPUs of a cluster, and check manifests.")
    _add_asking(parser, _called(given))
    return parser


def _run(parser_for: Callable[[Sequence[str]], argparse.ArgumentParser], given: Sequence[str]) -> int:
    lets_all_through()
    try:
        code = _called_by(parser_for(given), given)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has enough, as in ``| head``.
        _drop_output()
        return _READER_GONE
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _drop_output()
        sys.stderr.write(f"moorage: the output could not be written: {error.strerror}\n")
        return _UNWRITTEN
    except BadInput as error:
        sys.stderr.write(f"moorage: {line(str(error))}\n")
        return _BAD_INPUT
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def _drop_output() -> None:
    """What is left is not written when the process ends, either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _called_by(parser: argparse.ArgumentParser, given: Sequence[str]) -> int:
    if not given:
        parser.print_help()
        return 0
    arguments, unknown = parser.parse_known_args(given)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(unknown[0], arguments)}")
    if arguments.logs:
        _log(verbose=arguments.verbose)
    code: int = arguments.run(arguments)
    return code


def _meant(unknown: str, arguments: argparse.Namespace) -> str:
    """Which options of a component somebody may have meant; of other commands --help says it."""
    if "options" not in arguments:
        return ""
    from runtime.settings.declaration import nearest  # noqa: PLC0415 - for those who are wrong

    return f"; {nearest(unknown.partition('=')[0], arguments.options, prefix='--')}"


def _log(*, verbose: bool) -> None:
    import logging  # noqa: PLC0415 - 10 ms, for those who log

    if not verbose:
        logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(message)s")
        return
    from runtime.logs import TextForm  # noqa: PLC0415 - as above

    told = logging.StreamHandler()
    told.setFormatter(TextForm())
    logging.basicConfig(level=logging.INFO, handlers=[told])


def _parser(given: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Know all commands; but where one that asks is called, only those, since the others cost 0.1 s to load.

    ``given``: the words behind it; None: not known, so the options of every command are.
    """
    parser = _Parser(prog="moorage", description="A Kubernetes scheduler for GPU batch work.")
    called = _called(given)
    commands = _add_asking(parser, called)
    run.add_command(commands)
    if called == nodeagent.NAME:
        nodeagent.add_command(commands)
    if called not in commands.choices:
        _add_others(commands)
    return parser


def _called(given: Sequence[str] | None) -> str | None:
    """Which command a line names, "" for none, None for a line that is not known."""
    return None if given is None else next((word for word in given if not word.startswith("-")), "")


def _add_asking(parser: argparse.ArgumentParser, called: str | None) -> argparse._SubParsersAction[Any]:
    parser.add_argument("-v", "--verbose", action="store_true", help="log what happens to stderr")
    version.add_option(parser)
    parser.set_defaults(logs=True)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    inspect.add_command(commands)
    explain.add_command(commands)
    snapshot.add_command(commands)
    top.add_command(commands)
    offline.add_commands(commands)
    version.add_command(commands)
    ui.add_command(commands, is_called=called in {ui.NAME, None})
    admin.add_command(commands)
    return commands


def _add_others(commands: argparse._SubParsersAction[_Parser]) -> None:
    from cli import components, mps_keeper, nodes, warden  # noqa: PLC0415 - lazily: they load what talks to a cluster

    _add_simulate(commands)
    _add_demo(commands)
    nodes.add_command(commands)
    components.add_commands(commands)
    warden.add_command(commands)
    mps_keeper.add_command(commands)


def _add_simulate(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "simulate",
        help="show what manifests would do on a cluster, without one",
        description=(
            "Run the real scheduler, binder, admission and reservation code on an API server in memory and on "
            "simulated nodes, in virtual time. Exit code 0: every invariant held; 1: one did not; 2: bad input."
        ),
    )
    manifests.add_arguments(parser, "MANIFEST")
    parser.add_argument(
        "--nodes",
        action="append",
        default=[],
        metavar="NxGxMEM",
        help="N nodes of G GPUs of MEM: 4x8x80GiB; GPUs that differ: 1x2x24GiB+2x80GiB; may be repeated",
    )
    _add_node_additions(parser)
    dialects.add_option(parser)
    options.add_trace_arguments(parser)
    options.add_workload_arguments(parser)
    options.add_change_arguments(parser)
    output.add(parser, (output.TABLE, output.WIDE, output.JSON, output.YAML), has_header=False)
    parser.add_argument(
        "--adopt-all", action="store_true", help="take all pods as Moorage's, whichever scheduler they name"
    )
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same run (default 0)")
    parser.add_argument("--delay", default="0s", metavar="DURATION", help="watch events are late by up to so much")
    parser.add_argument(
        "--until", default="idle", metavar="idle|DURATION", help="when to look: when all is done, or after a time"
    )
    parser.add_argument("--real-time", action="store_true", help="let time pass as it does")
    parser.add_argument(
        "--record",
        metavar="FILE",
        help="write what happens into a new file, for moorage ui --open, until it is looked at",
    )
    _add_details(parser)
    parser.set_defaults(run=_simulate)


def _add_node_additions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--node-label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="label all nodes; may be repeated",
    )
    parser.add_argument(
        "--node-resource",
        action="append",
        default=[],
        metavar="NAME=QUANTITY",
        help="amount on each node: cpu=192, example.com/npu=8; repeatable",
    )


def _add_demo(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("demo", help="watch the examples on simulated GPUs", description=_demo.__doc__)
    parser.add_argument("--examples", default="", metavar="FOLDER", help="manifests to show (default: Moorage's own)")
    parser.add_argument("--seed", type=int, default=0, help="device order and identities follow from it (default 0)")
    _add_details(parser)
    parser.set_defaults(run=_demo)


def _add_details(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--details", action="store_true", help="name each invariant, not only how many held")


def _simulate(arguments: argparse.Namespace) -> int:
    if options.is_asked(arguments):
        from cli.simulation import snapshot as running  # noqa: PLC0415 - lazily, so that --help costs nothing

        return running.run(arguments)
    options.check(arguments)
    if (arguments.trace is not None or arguments.workload is not None) and (
        arguments.node_label or arguments.node_resource
    ):
        raise BadInput("--node-label, --node-resource: only with manifests, not with --trace or --workload")
    if arguments.trace is not None:
        return _replay(arguments)
    if arguments.workload is not None:
        return _workload(arguments)
    if not arguments.nodes:
        raise BadInput("--nodes: missing; give the nodes to simulate, as in --nodes 4x8x80GiB")
    from cli.simulation import manifests as simulate  # noqa: PLC0415 - lazily, so that --help costs nothing

    request = simulate.Request(
        nodes=arguments.nodes,
        files=manifests.named(arguments),
        output=arguments.output,
        seed=arguments.seed,
        delay_s=_seconds("--delay", arguments.delay),
        until_s=None if arguments.until == "idle" else _seconds("--until", arguments.until),
        real_time=arguments.real_time,
        record=arguments.record,
        details=arguments.details,
        adopt_all=arguments.adopt_all,
        node_labels=arguments.node_label,
        node_resources=arguments.node_resource,
        dialects=dialects.read(arguments.dialects),
    )
    return simulate.run(request)


def _workload(arguments: argparse.Namespace) -> int:
    if arguments.files or arguments.filename or arguments.nodes:
        raise BadInput("--workload: not with manifests or --nodes; a workload has nodes of its own")
    days, step = options.days(arguments.days), options.part(arguments.part)
    from cli.simulation import workload  # noqa: PLC0415 - lazily, as above

    request = workload.Request(
        workload=arguments.workload,
        days=days,
        seed=arguments.seed,
        preemption=arguments.preemption,
        step=step,
        output=arguments.output,
        plot=arguments.plot,
    )
    return workload.run(request)


def _replay(arguments: argparse.Namespace) -> int:
    strategies = [options.strategy_of(text) for text in arguments.strategy or ["priced"]]
    load, seeds = options.load(arguments.load), options.seeds(arguments.seeds)
    from cli.simulation import trace  # noqa: PLC0415 - lazily, as above

    request = trace.Request(
        trace=arguments.trace,
        variant=arguments.variant,
        nodes=arguments.nodes,
        strategies=strategies,
        load_percent=load,
        seeds=seeds,
        step=options.part(arguments.part),
        prices=arguments.prices,
        is_full=arguments.full,
        output=arguments.output,
        plot=arguments.plot,
    )
    return trace.run(request)


def _demo(arguments: argparse.Namespace) -> int:
    """Apply the examples one by one to a simulated cluster and show its GPUs as they fill."""
    from pathlib import Path  # noqa: PLC0415 - lazily, as above

    from cli import demo  # noqa: PLC0415

    folder = Path(arguments.examples) if arguments.examples else demo.examples()
    return demo.run(folder, seed=arguments.seed, details=arguments.details)


def _seconds(option: str, text: str) -> float:
    from runtime import text as durations  # noqa: PLC0415 - lazily, as above

    return durations.of_option(option, text)


if __name__ == "__main__":
    raise SystemExit(main())
