"""``moorage simulate``: what manifests, a trace, a workload or changes would do to a cluster (docs/simulate.md)."""

from __future__ import annotations

import argparse

from cli.simulation import options
from runtime import text
from runtime.options import manifests, output
from runtime.options import manifests as dialects
from runtime.text import BadInput


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.description = (
        "Run the real scheduler, binder, admission and reservation code on an API server in memory and on "
        "simulated nodes, in virtual time. Exit code 0: every invariant held; 1: one did not; 2: bad input."
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
    dialects.add_dialects(parser)
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
    parser.add_argument("--record", metavar="FILE", help="record the run to a new FILE, for moorage ui --open")
    parser.add_argument("--details", action="store_true", help="name each invariant, not only how many held")
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


def _simulate(arguments: argparse.Namespace) -> int:
    if options.is_asked(arguments):
        from cli.simulation import snapshot as running

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
    from cli.simulation import manifests as simulate

    request = simulate.Request(
        nodes=arguments.nodes,
        files=manifests.named(arguments),
        output=arguments.output,
        seed=arguments.seed,
        delay_s=text.of_option("--delay", arguments.delay),
        until_s=None if arguments.until == "idle" else text.of_option("--until", arguments.until),
        real_time=arguments.real_time,
        record=arguments.record,
        details=arguments.details,
        adopt_all=arguments.adopt_all,
        node_labels=arguments.node_label,
        node_resources=arguments.node_resource,
        dialects=dialects.dialects_of(arguments.dialects),
    )
    return simulate.run(request)


def _workload(arguments: argparse.Namespace) -> int:
    if arguments.files or arguments.filename or arguments.nodes:
        raise BadInput("--workload: not with manifests or --nodes; a workload has nodes of its own")
    days, step = options.days(arguments.days), options.part(arguments.part)
    from cli.simulation import workload

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
    from cli.simulation import trace

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
