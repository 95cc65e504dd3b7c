"""The process of ``moorage admin check``."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from cli.checks.foreign import check_node_resources
from cli.checks.mig import mig_check
from cli.checks.nodes import (
    check_agents,
    check_cdi,
    check_device_plugins,
    check_enforcement,
    check_multiplied,
    check_vanished,
    reports_check,
)
from cli.checks.policies import check_budget, check_policies
from cli.checks.reader import CantLook, Finding, Level, Reader
from cli.checks.rights import check_rights
from cli.checks.server import check_kinds, check_leaders, check_version, runtime_class_check
from cli.checks.trials import check_namespaces, check_trials
from cli.checks.webhooks import webhooks_check
from kube.client.clock import Clock, SystemClock
from runtime.client import reached
from runtime.options import output
from runtime.output import Progress, write

Check = Callable[[Reader], Awaitable[list[Finding]]]

_WIDTH: Final = max(len(level.value) for level in Level)


def checks(*, runtime_class: str, clock: Clock) -> dict[str, Check]:
    """Return all checks in the order in which they are told."""
    return {
        "version": check_version,
        "kinds": check_kinds,
        "runtime class": runtime_class_check(runtime_class),
        "cdi": check_cdi,
        "policies": check_policies,
        "budget": check_budget,
        "webhooks": webhooks_check(clock),
        "trials": check_trials,
        "namespaces": check_namespaces,
        "node resources": check_node_resources,
        "node GPUs": check_multiplied,
        "kept shares": check_vanished,
        "enforcement": check_enforcement,
        "node agents": check_agents,
        "node reports": reports_check(clock),
        "device plug-ins": check_device_plugins,
        "mig on demand": mig_check(clock),
        "rights": check_rights,
        "leaders": check_leaders,
    }


async def look(reader: Reader, wanted: dict[str, Check], progress: Progress | None = None) -> list[Finding]:
    """Make all checks. What can't be looked at fails: nothing is known about it."""
    findings: list[Finding] = []
    for number, (name, check) in enumerate(wanted.items(), start=1):
        if progress is not None:
            progress.doing = f"check {number} of {len(wanted)}: {name}"
        try:
            findings += await check(reader)
        except CantLook as error:
            do = "run this as somebody who may, where the API server can be reached"
            findings.append(Finding(Level.FAILED, name, f"could not be looked at: {error}", do))
    return findings


async def run(arguments: argparse.Namespace) -> int:
    """Check, print, and return the exit code. Raises BadInput when it can't be told where the API server is."""
    async with reached(arguments, "check") as cluster:
        wanted = checks(runtime_class=arguments.runtime_class, clock=SystemClock())
        progress = Progress()
        with progress.waiting():
            findings = await look(Reader(cluster.transport), wanted, progress)
    if arguments.output in output.FOR_PROGRAMS:
        write(for_programs(findings), arguments.output)
    else:
        print("\n".join(lines(findings)))
    return 1 if failed(findings) else 0


def failed(findings: Sequence[Finding]) -> int:
    """How many findings fail the command."""
    return sum(finding.level is Level.FAILED for finding in findings)


def for_programs(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings, and how many fail."""
    return {"failed": failed(findings), "findings": findings}


def lines(findings: Sequence[Finding]) -> list[str]:
    """Return a line for each finding, and a second one where something is to be done."""
    told: list[str] = []
    for finding in findings:
        told.append(f"{finding.level.value:{_WIDTH}}  {finding.check}: {finding.said}")
        if finding.do:
            told.append(f"{'':{_WIDTH}}  -> {finding.do}")
    counts = ", ".join(f"{sum(f.level is level for f in findings)} {level.value}" for level in Level)
    return [*told, counts]
