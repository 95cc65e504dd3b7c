"""What rules of preemption read beside nodes, queues and pods, as the shell comes to know it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from kube.telemetry.logevents import ignore
from scheduler.core.model.facts import Facts
from scheduler.core.model.preemption import BudgetRecord, Evicted, FailedClaim, PreemptionFacts, PreemptionSettings
from scheduler.core.preemption.nomination_record import MOST_CLAIMS, joined_claims
from scheduler.core.preemption.protection import ends_s, failed_again
from wire.tombstones import is_older

Labels = Mapping[str, str]
Key = tuple[str, str]


class KnownForPreemption:
    """Budgets, labels of pods that they may select, who is refused, evictions of the last hour, and failed claims.

    ``version`` grows whenever another answer may follow. Labels are kept in namespaces that have a budget, and only
    there: ``on_namespace`` is called with one whose pods have to be read, as its first budget appeared. ``on_gone`` is
    called with a pod (UID) that is gone, or has ended.
    """

    def __init__(
        self,
        settings: PreemptionSettings = PreemptionSettings(),  # noqa: B008 - frozen
        *,
        on_namespace: Callable[[str], None] = ignore,
        on_gone: Callable[[str], None] = ignore,
    ) -> None:
        self.version = 0
        self._settings = settings
        self.budgets: Facts[Key, BudgetRecord] = Facts(self._budget_changed, read_changed=self._changed)
        self._on_namespace = on_namespace
        self._on_gone = on_gone
        #: Namespace -> names of its budgets.
        self._named: dict[str, set[str]] = {}
        #: Pod UID -> its labels, and the pod's version and namespace.
        self._labels: dict[str, Labels] = {}
        self._of: dict[str, tuple[str, str]] = {}
        self._refused: frozenset[str] = frozenset()
        #: Pods (UIDs) whose eviction was tried.
        self._asked: set[str] = set()
        self._evicted: Mapping[str, Evicted] = {}
        #: Namespaces that take from nobody, as they gave up what others were evicted for, and until when (wall clock).
        self.takers_wait: Mapping[str, int] = {}
        #: Claims (UIDs) that could not be bound, those that failed last at the end.
        self.failed_claims: Mapping[str, FailedClaim] = {}

    def facts(self) -> PreemptionFacts:
        """All of it, as of now."""
        return PreemptionFacts(
            version=self.version,
            refused=self._refused,
            asked=self._asked,
            budgets=tuple(self.budgets.all()),
            labels=MappingProxyType(self._labels),
            evicted=self._evicted,
            takers_wait=self.takers_wait,
            failed_claims=self.failed_claims,
            settings=self._settings,
        )

    def _changed(self) -> None:
        self.version += 1

    # --- budgets and labels ----------------------------------------------------------------------------------------
    def _budget_changed(self, record: BudgetRecord) -> None:
        names = self._named.setdefault(record.namespace, set())
        had_one = bool(names)
        (names.add if record.key in self.budgets else names.discard)(record.name)
        if not names:
            del self._named[record.namespace]
            self._forget_namespace(record.namespace)
        elif not had_one:
            self._on_namespace(record.namespace)
        self._changed()

    def has_budget(self, namespace: str) -> bool:
        """Whether labels of pods of this namespace are to be kept."""
        return namespace in self._named

    def put_labels(self, uid: str, namespace: str, rv: str, labels: Labels) -> None:
        """Take the labels of a bound pod of a namespace with a budget, unless newer ones are known."""
        known = self._of.get(uid)
        if not self.has_budget(namespace) or (known is not None and is_older(rv, known[0])):
            return
        self._of[uid] = (rv, namespace)
        if self._labels.get(uid) != labels:
            self._labels[uid] = labels
            self._changed()

    def drop_pod(self, uid: str) -> None:
        """A pod is gone, or has ended."""
        self._on_gone(uid)
        self._asked.discard(uid)
        self._drop_labels(uid)

    def _drop_labels(self, uid: str) -> None:
        if self._of.pop(uid, None) is not None:
            del self._labels[uid]

    def _forget_namespace(self, namespace: str) -> None:
        for uid in [uid for uid, (_, of) in self._of.items() if of == namespace]:
            self._drop_labels(uid)

    # --- what the API server said, and what was done ------------------------------------------------------------------
    def note_refused(self, uid: str, is_refused: bool) -> None:
        """Take whether the API server lets a pod go."""
        if (uid in self._refused) != is_refused:
            self._refused = self._refused | {uid} if is_refused else self._refused - {uid}
            self._changed()

    def note_asked(self, uid: str) -> None:
        """Take that the eviction of a pod was tried: it is waited for from now on."""
        if uid not in self._asked:
            self._asked.add(uid)
            self._changed()

    def note_unwritten(self) -> None:
        """A nomination was not written, so it is to be decided again, though nothing else has changed."""
        self._changed()

    def note_evicted(self, evicted: Mapping[str, Evicted]) -> None:
        """Take evictions of the last hour, by owner."""
        if evicted != self._evicted:
            self._evicted = evicted
            self._changed()

    def note_takers_wait(self, until_s: Mapping[str, int]) -> None:
        """Take which namespaces take from nobody for a while."""
        if until_s != self.takers_wait:
            self.takers_wait = until_s
            self._changed()

    # --- claims ------------------------------------------------------------------------------------------------------
    def note_claim_failed(self, uid: str, *, at_s: int, beside: Iterable[str] = ()) -> None:
        """Take that a claim could not be bound for a pod that had its place (wall clock).

        ``beside``: claims that are bound with it, for the pod and its gang. Of those that all fail another one may be
        the first each time, so it goes on from what is known of all of them.
        """
        known = (self.failed_claims.get(each) for each in (uid, *beside))
        before = max(filter(None, known), key=lambda each: ends_s(each, at_s), default=None)
        failed = failed_again(before, at_s)
        if failed != self.failed_claims.get(uid):
            others = {key: each for key, each in self.failed_claims.items() if key != uid}
            self._have_failed({**others, uid: failed})

    def note_claims_bound(self, uids: Iterable[str]) -> None:
        """Take that these were bound: what failed before is over."""
        over = self.failed_claims.keys() & set(uids)
        if over:
            self._have_failed({uid: failed for uid, failed in self.failed_claims.items() if uid not in over})

    def note_claims_known(self, claims: Mapping[str, FailedClaim], *, at_s: int) -> None:
        """Take what an earlier leader has known of claims that failed. What it dates later than now is of now.

        Else a clock that was a day ahead would make a pause of 5 minutes one of a day.
        """
        dated = {uid: failed._replace(last_s=min(failed.last_s, at_s)) for uid, failed in claims.items()}
        known = joined_claims((self.failed_claims, dated))
        if known != self.failed_claims:
            self._have_failed(known)

    def _have_failed(self, claims: Mapping[str, FailedClaim]) -> None:
        self.failed_claims = dict(list(claims.items())[-MOST_CLAIMS:])
        self._changed()
