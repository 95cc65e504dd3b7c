"""``moorage admin check``: run all checks and print their findings.

The checks of the API server are here: its version, the kinds, the runtime class of shares, and leaders that live.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio

from cli.checks.admission import check_budget, check_policies, webhooks_check
from cli.checks.mig import mig_check
from cli.checks.nodes import (
    check_agents,
    check_cdi,
    check_device_plugins,
    check_enforcement,
    check_multiplied,
    check_node_resources,
    check_vanished,
    reports_check,
)
from cli.checks.reader import CantLook, Finding, Level, Raw, Reader, finding_lines, some_of
from cli.checks.rights import check_rights
from cli.checks.trials import check_namespaces, check_trials
from kube.client.clock import Clock, SystemClock
from kube.client.resources import BIND_REQUESTS, LEASES, POD_GROUPS, QUEUES, TOPOLOGIES
from runtime.client import reached
from runtime.options import output
from runtime.output import Progress, write
from wire import names

_KINDS: Final = (BIND_REQUESTS, POD_GROUPS, QUEUES, TOPOLOGIES)
#: ValidatingAdmissionPolicy is served as v1 from here on.
_LEAST_MINOR: Final = 30
_LEADERS: Final = ("moorage-scheduler", "moorage-binder")
_POLL_S: Final = 0.25


async def check_version(reader: Reader) -> list[Finding]:
    """ValidatingAdmissionPolicies hold what no webhook can."""
    found = await reader.get("/version") or {}
    version = str(found.get("gitVersion", "unknown"))
    minor = int(re.match(r"\d*", str(found.get("minor", "")))[0] or 0)  # type: ignore[index]  # it matches ""
    if (str(found.get("major")), minor) < ("1", _LEAST_MINOR):
        said = f"API server {version} is too old; allowed: 1.{_LEAST_MINOR} and later"
        return [Finding(Level.FAILED, "version", said, "update Kubernetes: admission policies are not served")]
    return [Finding(Level.OK, "version", f"API server {version}")]


async def check_kinds(reader: Reader) -> list[Finding]:
    """KAI's kinds of objects are served."""
    root = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    wanted = [f"{kind.plural}.{kind.group}" for kind in _KINDS]
    missing = [name for name in wanted if not _is_established(await reader.get(f"{root}/{name}"))]
    if missing:
        said = f"not served: {some_of(missing)}"
        return [Finding(Level.FAILED, "kinds", said, "apply wire/crds/yaml")]
    return [Finding(Level.OK, "kinds", f"served: {', '.join(wanted)}")]


def _is_established(crd: Raw | None) -> bool:
    conditions = ((crd or {}).get("status") or {}).get("conditions") or ()
    return any((one.get("type"), one.get("status")) == ("Established", "True") for one in conditions)


def runtime_class_check(name: str) -> Callable[[Reader], Any]:
    """Return the check that pods with shares find their runtime class."""

    async def check(reader: Reader) -> list[Finding]:
        if not name:
            return [Finding(Level.OK, "runtime class", "pods with shares need none")]
        if await reader.get(f"/apis/node.k8s.io/v1/runtimeclasses/{name}") is None:
            said = f"RuntimeClass {name} is not there: every pod that asks for a share is refused"
            return [Finding(Level.FAILED, "runtime class", said, "install NVIDIA's container toolkit or GPU operator")]
        return [Finding(Level.OK, "runtime class", f"RuntimeClass {name} is there")]

    return check


async def check_leaders(reader: Reader) -> list[Finding]:
    """Scheduler and binder work: their leases are renewed while we look. No clocks are compared."""
    findings: list[Finding] = []
    path = LEASES.path(names.SYSTEM_NAMESPACE)
    for name in _LEADERS:
        first = await reader.get(f"{path}/{name}")
        holder, duration_s = _held(first)
        if first is None or not first.get("spec"):
            findings.append(_never_led(name))
        elif not holder:
            findings.append(_not_led(name, "nobody leads (or it runs without election)"))
        elif await _is_renewed(reader, f"{path}/{name}", _version(first), within_s=duration_s):
            findings.append(Finding(Level.OK, "leaders", f"{name}: {holder} leads"))
        else:
            findings.append(_not_led(name, f"{holder} has not renewed its lease for {duration_s} s"))
    return findings


async def _is_renewed(reader: Reader, path: str, version: str, *, within_s: int) -> bool:
    """Whether a lease gets another version within its duration."""
    for _ in range(max(1, round(within_s / _POLL_S))):
        await anyio.sleep(_POLL_S)
        if _version(await reader.get(path)) != version:
            return True
    return False


def _not_led(name: str, why: str) -> Finding:
    return Finding(Level.FAILED, "leaders", f"{name}: {why}", "look at its pods and logs: no pod is placed meanwhile")


def _never_led(name: str) -> Finding:
    """Nothing tells a process without election from none, so nothing can be said of it."""
    said = f"{name}: nobody has ever held its lease: it runs without election, or not at all"
    return Finding(Level.WARNING, "leaders", said, "if it is meant to be elected, look at its pods and logs")


def _held(lease: Raw | None) -> tuple[str, int]:
    spec = (lease or {}).get("spec") or {}
    return str(spec.get("holderIdentity") or ""), int(spec.get("leaseDurationSeconds") or 0)


def _version(obj: Raw | None) -> str:
    return str(((obj or {}).get("metadata") or {}).get("resourceVersion", ""))


Check = Callable[[Reader], Awaitable[list[Finding]]]


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
        told += finding_lines(finding.level, f"{finding.check}: {finding.said}", finding.do)
    counts = ", ".join(f"{sum(f.level is level for f in findings)} {level.value}" for level in Level)
    return [*told, counts]
