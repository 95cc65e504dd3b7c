"""Everything about room that is made: intents on record, evictions for others, room that is kept, budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator import roomrecord
from simulator.checks.budgets import Budgets
from simulator.checks.counting import NodeFacts
from simulator.checks.evicting import HEARSAY_S, ForOthers
from simulator.checks.in_vain import InVain
from simulator.checks.keptroom import KeptRoom
from simulator.checks.limits import Limits
from simulator.checks.standing import Record, Standing
from simulator.checks.takers import Takers
from simulator.checks.taking import Taking
from simulator.checks.writes import Write
from simulator.facts import Json, PodFacts
from simulator.gangs import Gangs
from simulator.violations import Findings


class Intents:
    """Judges S7 and S13 of evictions for others, S14, and L6.

    ``pods``: all that were ever seen, ``live``: those that are there; ``on_node``: node -> UIDs of its pods; ``find``:
    the pod of a namespace and name.
    """

    def __init__(
        self,
        findings: Findings,
        limits: Limits,
        gangs: Gangs,
        *,
        pods: Mapping[str, PodFacts],
        live: Mapping[str, PodFacts],
        nodes: Mapping[str, NodeFacts],
        on_node: Mapping[str, Mapping[str, None]],
        find: Callable[[str, str], PodFacts | None],
    ) -> None:
        self._findings, self._limits, self._live = findings, limits, live
        self._record = Record(pods, live)
        self._kept_room = KeptRoom(findings, self._record, limits, nodes, on_node)
        self._budgets = Budgets(live)
        self._taking = Taking(findings, limits, gangs, pods)
        self._in_vain = InVain(findings, self._record, nodes, self._late_s)
        self._takers = Takers(findings, pods, live, self._late_s)
        self._for_others = ForOthers(findings, self._record, limits, self._budgets, find, self._was_for)

    def _was_for(self, standing: Standing) -> None:
        self._in_vain.evicted(standing)
        self._takers.evicted(standing)

    def _late_s(self, at_s: float) -> float:
        return HEARSAY_S + self._limits.lateness.at(at_s - self._findings.start_s)

    def record(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a ConfigMap of the scheduler's namespace."""
        if (pool := roomrecord.pool_of(raw["metadata"]["name"])) is not None:
            for text in self._record.take(raw, pool, at_s, is_gone=is_gone):
                self._findings.add("S13", at_s, text)
            self._in_vain.recorded(at_s)
            listed = [each.intent for each in self._record.standing if each.intent.pool == pool]
            self._taking.record(pool, listed, at_s, late_s=self._late_s(at_s))

    def request(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a BindRequest."""
        self._record.request(raw, is_gone=is_gone)
        self._in_vain.request((raw["metadata"].get("namespace", ""), str((raw.get("spec") or {}).get("podName"))), at_s)

    def node(self, name: str, known: NodeFacts | None, at_s: float) -> None:
        """A node was shown. ``known``: as it was before."""
        self._in_vain.node(name, known, at_s)

    def queue(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """A queue was shown, or is gone."""
        self._in_vain.queue(raw, at_s, is_gone=is_gone)

    def budget(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodDisruptionBudget."""
        self._budgets.take(raw, at_s, is_gone=is_gone)

    def pod_group(self, raw: Json, at_s: float, *, is_gone: bool) -> None:
        """Take a version of a PodGroup."""
        self._taking.pod_group(raw, at_s)
        self._in_vain.pod_group(raw, at_s, is_gone=is_gone)

    def pod(self, known: PodFacts | None, pod: PodFacts, at_s: float, *, is_bound: bool) -> None:
        """Take a version of a pod. ``known``: the one before it; ``is_bound``: it was bound by this."""
        self._record.pod(pod, at_s)
        self._budgets.pod(pod, at_s)
        self._takers.pod(pod, at_s)
        self._taking.pod(pod, at_s, is_there=pod.uid in self._live)
        self._in_vain.pod(known, pod, at_s, is_there=pod.uid in self._live, is_bound=is_bound)
        if is_bound and pod.is_ours:
            self._kept_room.bound(pod, at_s)

    def evicted(self, write: Write) -> None:
        """Take an eviction for others."""
        self._for_others.take(write)

    def judge(self, at_s: float, *, is_end: bool = False) -> None:
        """Judge what happened long enough ago that all watches have told of it."""
        self._for_others.judge(at_s, is_end=is_end)
        self._kept_room.judge(at_s, is_end=is_end)
        self._taking.judge(at_s, is_end=is_end)
        self._in_vain.judge(at_s, is_end=is_end)

    def judge_rest(self, at_s: float) -> None:
        """L6: at rest every intent has come to its end."""
        self._for_others.judge_rest(at_s)
