"""What a simulation makes of workloads of other projects, and what it passes over: the lines that say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpu import manifests
from gpu.translation import shown
from podgrouper.core import answers
from podgrouper.core.answers import Nothing, Why
from simulator.controllers.table import Workload
from simulator.podmaking import child

#: Most kinds that one line names.
_MOST_NAMED: Final = 10
#: A kind of a group with this ending, or without a dot in it, is Kubernetes' own and is named without its group.
_OWN: Final = ".k8s.io"


class Passed:
    """Counts by kind."""

    def __init__(self) -> None:
        self._without_pods: Counter[str] = Counter()
        self._without_controller: Counter[str] = Counter()
        self._made: Counter[str] = Counter()
        self._pods: Counter[str] = Counter()
        self._older: Counter[str] = Counter()
        self._suspended: Counter[str] = Counter()
        self._admitted: Counter[str] = Counter()
        self._bound: Counter[str] = Counter()
        self._not_grouped: list[str] = []
        self._accounts: list[tuple[str, str]] = []
        self._missing: list[str] = []

    def note(self, obj: Mapping[str, Any]) -> None:
        """Note an object that is neither created nor expanded."""
        has_pods = next(manifests.templates(obj), None) is not None
        (self._without_controller if has_pods else self._without_pods)[_name(obj)] += 1

    def note_older(self, obj: Mapping[str, Any], version: str) -> None:
        """Note an object that is read as one of a newer version of its kind."""
        self._older[f"{obj['kind']} of {obj['apiVersion']} as {version}"] += 1

    def note_expanded(self, obj: Mapping[str, Any]) -> None:
        """Note a controller that is expanded: whether it is suspended, as Kueue gets its jobs."""
        spec = obj.get("spec")
        if child(spec, "suspend") is True or child(child(spec, "runPolicy"), "suspend") is True:
            self._suspended[_name(obj)] += 1

    def note_admitted(self, obj: Mapping[str, Any]) -> None:
        """Note an object that Kueue would hold back until it admits it."""
        self._admitted[_name(obj)] += 1

    def note_bound(self, claim: Mapping[str, Any]) -> None:
        """Note a claim that is taken as bound."""
        self._bound[_name(claim)] += 1

    def note_made(self, obj: Mapping[str, Any], about: str, workload: Workload) -> None:
        """Note a workload whose pods are made; ``about``: its kind, namespace and name."""
        self._made[_name(obj)] += 1
        self._pods[_name(obj)] += len(workload.members)
        if workload.why and workload.why != answers.told(Nothing(Why.ALONE)):
            self._not_grouped.append(f"{shown(about)}: {workload.why}")

    def note_ungrouped(self, about: str, why: str) -> None:
        """Note a pod that gets no PodGroup; ``about``: where it stands, kind, namespace and name."""
        self._not_grouped.append(f"{shown(about)}: {why}")

    def note_missing(self, about: str, missing: str) -> None:
        """Note a Workflow without pods, and the object that it needs; ``about``: its kind, namespace and name."""
        self._missing.append(f"{shown(about)}: {missing} is not among the manifests")

    def note_accounts(self, made: Sequence[tuple[str, str]]) -> None:
        """Note ServiceAccounts (namespace, name) that pods name and the manifests lack."""
        self._accounts += made

    def lines(self) -> Iterator[str]:
        """Say what was passed over, a line for each reason."""
        if self._older:
            yield f"read as newer versions, because a cluster refuses the older ones: {_counts(self._older)}"
        if self._made:
            named = [f"{count} {kind} ({self._pods[kind]} pods)" for kind, count in self._made.most_common()]
            made = "pods made as the controllers would make them, with the PodGroups of 'translate --podgroup'"
            yield f"{made}: {', '.join(named)}"
        if self._admitted:
            yield f"taken as admitted, because Kueue is not simulated: {_counts(self._admitted)}"
        if self._bound:
            yield f"taken as bound, because no provisioner is simulated: {_counts(self._bound)}"
        if self._suspended:
            yield f"without pods, because they are suspended: {_counts(self._suspended)}"
        yield from _first("no pods for", self._missing, "Workflows")
        yield from _first("no PodGroup for", self._not_grouped, "workloads")
        if self._accounts:
            shown_of = [shown(f"{namespace}/{name}") for namespace, name in self._accounts[:_MOST_NAMED]]
            more = len(self._accounts) - len(shown_of)
            named_as = ", ".join([*shown_of, *([f"{more} more"] if more else [])])
            yield f"ServiceAccounts that pods name and the manifests lack, taken as present: {named_as}"
        if self._without_pods:
            yield f"passed over, because they make no pods: {_counts(self._without_pods)}"
        if self._without_controller:
            why = "their pods are not made, because their controllers are not simulated"
            yield f"{why}: {_counts(self._without_controller)}"


def _first(what: str, named: Sequence[str], plural: str) -> Iterator[str]:
    """Say it of the first, and of how many more."""
    yield from (f"{what} {each}" for each in named[:_MOST_NAMED])
    if len(named) > _MOST_NAMED:
        yield f"{what} {len(named) - _MOST_NAMED} more {plural}"


def _name(obj: Mapping[str, Any]) -> str:
    kind, api_version = shown(str(obj.get("kind"))), obj.get("apiVersion")
    group = api_version.rpartition("/")[0] if isinstance(api_version, str) else ""
    return kind if "." not in group or group.endswith(_OWN) else f"{kind}.{shown(group)}"


def _counts(kinds: Counter[str]) -> str:
    named = [f"{count} {kind}" for kind, count in kinds.most_common(_MOST_NAMED)]
    more = len(kinds) - len(named)
    return ", ".join([*named, *([f"objects of {more} more kinds"] if more > 0 else [])])
