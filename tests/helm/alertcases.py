"""For each alert a trouble in which it fires, and near misses in which it stays silent, as series of a cluster.

Values are in Prometheus' notation for tests, one a minute: ``0+5x10`` rises by 5 ten times, ``1x9`` is ten times 1,
``_`` is a scrape that found nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from runtime.metrics.declared import COMPONENTS, Metric
from runtime.metrics.nodeagent import TENANTS

Series = dict[str, str]
METRICS: Final[Mapping[str, Metric]] = {
    metric.name: metric for each in (*COMPONENTS.values(), TENANTS) for metric in each
}


class Case(msgspec.Struct, frozen=True):
    """``fires``: the labels of each alert, without its name and severity, with the summary, at that time.

    None: it is silent, up to that time.
    """

    name: str
    alert: str
    series: Series
    at_minutes: int
    fires: tuple[tuple[dict[str, str], str], ...] = ()


def one(metric: str, values: str, job: str, instance: str = "a", **labels: str) -> Series:
    """One series of a component's replica."""
    texts = ",".join(f'{name}="{text}"' for name, text in {"job": job, "instance": instance, **labels}.items())
    return {f"{metric}{{{texts}}}": values}


def seconds(metric: str, took_s: float, per_minute: int, minutes: int, job: str, **labels: str) -> Series:
    """A histogram that counts so many a minute, each of this length."""
    counted, none = f"0+{per_minute}x{minutes}", f"0x{minutes}"
    made: Series = {}
    for bound in METRICS[metric].buckets:
        made |= one(f"{metric}_bucket", counted if took_s <= bound else none, job, le=f"{bound:g}", **labels)
    made |= one(f"{metric}_bucket", counted, job, le="+Inf", **labels)
    return made | one(f"{metric}_count", counted, job, **labels)


def binds(outcome: str, values: str) -> Series:
    return one("moorage_binds_total", values, "binder", outcome=outcome)


def requests(code: str, values: str) -> Series:
    return one("moorage_api_requests_total", values, "scheduler", verb="create", resource="pods/binding", code=code)


def forbidden(verb: str, resource: str) -> Series:
    return one("moorage_api_requests_total", "0+1x60", "podgrouper", verb=verb, resource=resource, code="403")


def ungrouped(values: str) -> Series:
    return one("moorage_ungrouped_workloads", values, "podgrouper", "a") | one(
        "moorage_ungrouped_workloads", "0x60", "podgrouper", "b"
    )


def pool(used: float, stranded: float) -> Series:
    states = {"used": used, "free": 2.0, "pieces": 0.5, "stranded": stranded}
    made: Series = {}
    for state, gpus in states.items():
        value = f"{round(gpus * 1e9)}x130"
        made |= one("moorage_pool_nano_gpus", value, "scheduler", node_pool="a", product="H100", state=state)
    return made


def unusable(pieces: float, cpu: float, cordoned: float = 0.0, *, waiting: str = "3x130") -> Series:
    made = pool(used=8 - pieces, stranded=0.0) | one(WAITING, waiting, "scheduler", reason="NoNodeFits")
    for cause, gpus in {"pieces": pieces, "cpu": cpu, "cordoned": cordoned, "closed": 0.0}.items():
        value = f"{round(gpus * 1e9)}x130"
        made |= one("moorage_unusable_nano_gpus", value, "scheduler", node_pool="a", product="H100", cause=cause)
    return made


def leads(scheduler: str, standby: str, binder: str = "1x130") -> Series:
    return (
        one("moorage_leader", scheduler, "scheduler", "a")
        | one("moorage_leader", standby, "scheduler", "b")
        | one("moorage_leader", binder, "binder")
    )


SILENCE: Final = "moorage_watch_silence_seconds"
DIFFERENCES: Final = "moorage_ledger_differences_total"
DRIFT: Final = "moorage_ledger_drift_pods"
HELD: Final = "moorage_reservations"
WAITING: Final = "moorage_waiting_pods"
UNREADABLE: Final = "moorage_watch_unreadable_objects"
REVIEWS: Final = "moorage_webhook_review_duration_seconds"
LAG: Final = "moorage_watch_lag_seconds"
LOOP: Final = "moorage_event_loop_lag_seconds"


def evicted(values: str, action: str = "reclaim") -> Series:
    """Evictions for others; those of stale gangs don't count."""
    return one("moorage_evictions_total", values, "scheduler", action=action, result="evicted") | one(
        "moorage_evictions_total", "0+1000x60", "scheduler", action="stalegangeviction", result="evicted"
    )


def without_start(values: str) -> Series:
    return one("moorage_evictions_without_start_total", values, "scheduler")


def failed_review(values: str) -> Series:
    return one(f"{REVIEWS}_count", values, "admission", webhook="mutate", answer="failed")


def _fires() -> Iterator[Case]:
    no_leader = "No replica of {} leads, so no pod is placed"
    yield Case(
        "nobody leads", "MoorageNoLeader", leads("0x9", "0x9"), 3,
        (({"job": "scheduler"}, no_leader.format("scheduler")),),
    )  # fmt: skip
    yield Case(
        "no binder is there", "MoorageNoLeader", leads("1x9", "0x9", binder="1x3 _x9"), 11,
        (({"job": "binder"}, no_leader.format("binder")),),
    )  # fmt: skip
    yield Case(
        "nothing is there", "MoorageNoLeader", {}, 3,
        tuple(({"job": job}, no_leader.format(job)) for job in ("scheduler", "binder")),
    )  # fmt: skip
    yield Case(
        "nobody groups", "MoorageNoLeader", leads("1x9", "0x9") | one("moorage_leader", "0x9", "podgrouper"), 3,
        (({"job": "podgrouper"}, "No replica of podgrouper leads, so no workload is grouped"),),
    )  # fmt: skip
    yield Case(
        "a workload is torn", "MoorageWorkloadsUngrouped", ungrouped("0x3 2x20"), 20,
        (({}, "2 workloads have pods that cannot be grouped"),),
    )  # fmt: skip
    yield Case(
        "PodGroups are refused", "MoorageForbidden", forbidden("create", "podgroups"), 32,
        (({"job": "podgrouper", "verb": "create", "resource": "podgroups"}, "podgrouper may not create podgroups"),),
    )  # fmt: skip
    yield Case(
        "two lead", "MoorageTwoLeaders", leads("1x9", "1x9"), 3,
        (({"job": "scheduler"}, "More than one replica of scheduler works"),),
    )  # fmt: skip
    yield Case(
        "a KAI was started", "MoorageBesideKai", one("moorage_kai_at_work", "0x2 1x9", "binder"), 3,
        (({}, "A KAI Scheduler runs in this cluster beside Moorage"),),
    )  # fmt: skip
    yield Case(
        "no admission is there", "MoorageAdmissionDown", one(SILENCE, "9x9", "scheduler", resource="pods"), 3,
        (
            (
                {"job": "admission"},
                "No replica of admission exports metrics, so pods of Moorage probably cannot be created",
            ),
        ),
    )  # fmt: skip
    yield Case(
        "a recount differs", "MoorageLedgerWrong", one(DIFFERENCES, "0x5 1x9", "scheduler"), 7,
        (({}, "The scheduler's ledger differed from a recount"),),
    )  # fmt: skip
    yield Case(
        "tenants without a book", "MoorageBooksWrong", one(DRIFT, "2x9", "binder", kind="uncharged"), 6,
        (({"kind": "uncharged"}, "Books of shared GPUs are wrong about 2 bound pods (uncharged)"),),
    )  # fmt: skip
    yield Case(
        "a book of garbage", "MoorageReservationUnreadable", one(HELD, "1x15", "binder", state="unreadable"), 11,
        (({}, "1 reservation pods have an unreadable book; their GPUs accept no pods"),),
    )  # fmt: skip
    yield Case(
        "ill GPUs", "MoorageSharedGpuIll", one(HELD, "3x15", "binder", state="ill"), 6,
        (({}, "3 shared GPUs are reported as unhealthy by their device plugin"),),
    )  # fmt: skip
    yield Case(
        "reservations that say nothing", "MoorageReservationsFail",
        binds("ReservationSilent", "_x3 1+1x20") | binds("ReservationFailed", "_x9 1x20"), 12,
        (({}, "Reservation pods do not start, or do not report their GPU"),),
    )  # fmt: skip
    yield Case(
        "refused by somebody", "MoorageBindsFail", binds("Refused", "0+6x60") | binds("bound", "0+1x60"), 40,
        (({}, "More than half of the attempts to bind fail"),),
    )  # fmt: skip
    yield Case(
        "no decision", "MooragePodsUndecided", one(WAITING, "12x20", "scheduler", reason="Undecided"), 11,
        (({}, "12 pods are pending without a decision"),),
    )  # fmt: skip
    yield Case(
        "GPUs for nobody", "MoorageStranded", pool(used=6, stranded=2), 65,
        (
            (
                {"node_pool": "a", "product": "H100"},
                "A tenth of the GPUs of pool a (H100) is free but unusable",
            ),
        ),
    )  # fmt: skip
    yield Case(
        "GPUs that fit no pod", "MoorageFragmented", unusable(pieces=0.5, cpu=1.0), 65,
        (
            (
                {"node_pool": "a", "product": "H100"},
                "A tenth of the GPUs of pool a (H100) is free and fits no pod",
            ),
        ),
    )  # fmt: skip
    now_and_then = unusable(pieces=1.5, cpu=0.0, waiting="0x20 1x3 0x40 1x3 0x60")
    yield Case(
        "pods wait now and then", "MoorageFragmented", now_and_then, 100,
        (({"node_pool": "a", "product": "H100"}, "A tenth of the GPUs of pool a (H100) is free and fits no pod"),),
    )  # fmt: skip
    yield Case(
        "a silent watch", "MoorageWatchSilent", one(SILENCE, "0+60x9", "binder", resource="pods"), 7,
        (({"job": "binder", "instance": "a", "resource": "pods"}, "binder receives nothing from its watch of pods"),),
    )  # fmt: skip
    yield Case(
        "never in step", "MoorageWatchSilent", one(SILENCE, "+Inf " * 9, "binder", resource="pods"), 3,
        (({"job": "binder", "instance": "a", "resource": "pods"}, "binder receives nothing from its watch of pods"),),
    )  # fmt: skip
    yield Case(
        "late watches", "MoorageWatchLate", seconds(LAG, 8, 6, 40, "scheduler", resource="pods"), 30,
        (({"job": "scheduler", "resource": "pods"}, "Watches of pods are seconds late at scheduler"),),
    )  # fmt: skip
    yield Case(
        "objects of garbage", "MoorageObjectsUnreadable", one(UNREADABLE, "4x9", "scheduler", resource="queues"), 6,
        (
            (
                {"job": "scheduler", "resource": "queues"},
                "4 queues cannot be decoded by scheduler and are ignored",
            ),
        ),
    )  # fmt: skip
    for code in ("503", "timeout", "unreachable"):
        yield Case(
            f"a fifth ends with {code}", "MoorageApiFails", requests(code, "0+2x40") | requests("201", "0+8x40"), 30,
            (({"job": "scheduler"}, "A tenth of the requests of scheduler to the API server fail"),),
        )  # fmt: skip
    yield Case(
        "a right is missing", "MoorageForbidden", requests("403", "_x3 1+1x40"), 30,
        (
            (
                {"job": "scheduler", "verb": "create", "resource": "pods/binding"},
                "scheduler may not create pods/binding",
            ),
        ),
    )  # fmt: skip
    yield Case(
        "a starved process", "MoorageLoopLate", seconds(LOOP, 3, 20, 40, "binder"), 30,
        (({"job": "binder"}, "The event loop of binder is more than a second late"),),
    )  # fmt: skip
    yield Case(
        "slow reviews", "MoorageReviewsSlow",
        seconds(REVIEWS, 2, 30, 40, "admission", webhook="mutate", answer="patched"), 30,
        (({"webhook": "mutate"}, "Webhook mutate takes more than a second to answer"),),
    )  # fmt: skip
    yield Case(
        "one review failed", "MoorageReviewsFail", failed_review("0x5 1x9"), 7,
        (({"webhook": "mutate"}, "Webhook mutate could not answer reviews"),),
    )  # fmt: skip


def queue(metric: str, values: str, instance: str = "a", name: str = "research") -> Series:
    names = {"queue_name": name, "queue_metadata_name": name, "queue_display_name": "Research"}
    return one(metric, values, "scheduler", instance, **names)


def used(resource: str, allocated: str, limit: str) -> Series:
    return queue(f"kai_queue_allocated_{resource}", allocated) | queue(f"kai_queue_limit_{resource}", limit)


def owed(values: str, instance: str = "a") -> Series:
    return one("moorage_queue_owed_nano_gpus", values, "scheduler", instance, queue_metadata_name="research")


def _fires_for_queues() -> Iterator[Case]:
    labels = {"queue_metadata_name": "research"}
    lacks = "Queue research lacks GPUs that its quota guarantees, and its pods wait"
    yield Case("two GPUs are owed", "MoorageQueueStarved", owed("0x3 2000000000x30"), 20, ((labels, lacks),))
    taken_over = owed("1000000000x8 stale") | owed("_x9 1000000000x30", "b")
    yield Case("owed across a hand-over", "MoorageQueueStarved", taken_over, 18, ((labels, lacks),))
    in_vain = "More than a tenth of the pods evicted for others were evicted for pods that did not start"
    yield Case(
        "every second eviction",
        "MoorageEvictionsInVain",
        evicted("0+2x60") | without_start("0+1x60"),
        30,
        (({}, in_vain),),
    )
    above = "Queue research has more allocated than its limit"
    for resource, limit in (("gpus", 8), ("cpu_cores", 64), ("memory_bytes", 10**11)):
        series = used(resource, f"{limit}x3 {limit + 1}x20", f"{limit}x30")
        yield Case(f"too many {resource}", "MoorageQueueAboveLimit", series, 10, ((labels, above),))
    several = used("gpus", "9x20", "8x20") | used("cpu_cores", "9x20", "8x20")
    yield Case("too much of two", "MoorageQueueAboveLimit", several, 10, ((labels, above),))


def _silent_about_queues() -> Iterator[Case]:
    yield Case("owed for ten minutes", "MoorageQueueStarved", owed("0x3 2000000000x9 0x30"), 40)
    yield Case("one in twenty", "MoorageEvictionsInVain", evicted("0+20x60") | without_start("0+1x60"), 55)
    moved = evicted("0+20x60", "consolidation") | without_start("0+1x60")
    yield Case("one in twenty of those that were moved", "MoorageEvictionsInVain", moved, 55)
    yield Case("five of six in an hour", "MoorageEvictionsInVain", evicted("0x9 6x60") | without_start("0x9 5x60"), 55)
    at_it = used("gpus", "8x30", "8x30") | used("cpu_cores", "63.5x30", "64x30")
    yield Case("at its limit", "MoorageQueueAboveLimit", at_it, 30)
    endless = used("gpus", "80x30", "-1x30") | used("memory_bytes", "80x30", "-1x30")
    yield Case("no limit", "MoorageQueueAboveLimit", endless, 30)
    other = queue("kai_queue_allocated_gpus", "9x30") | queue("kai_queue_limit_gpus", "8x30", name="vision")
    yield Case("the limit is another queue's", "MoorageQueueAboveLimit", other, 30)
    lowered = used("gpus", "8x10 4x20", "8x8 4x20")
    yield Case("a limit was lowered, and pods ended", "MoorageQueueAboveLimit", lowered, 30)


def _silent() -> Iterator[Case]:
    yield Case("a hand-over takes a minute", "MoorageNoLeader", leads("1x5 0x20", "0x6 1x20"), 8)
    yield Case("both said so for a moment", "MoorageTwoLeaders", leads("1x6 0x20", "0x5 1x20"), 7)
    yield Case("no KAI", "MoorageBesideKai", one("moorage_kai_at_work", "0x20", "binder"), 15)
    rolled = one(SILENCE, "5x5 _x20", "admission", "a", resource="namespaces")
    rolled |= one(SILENCE, "_x4 5x20", "admission", "b", resource="namespaces")
    yield Case("another replica took its place", "MoorageAdmissionDown", rolled, 15)
    gap = one(SILENCE, "5x5 stale 5x9", "admission", resource="namespaces")
    yield Case("a scrape that failed", "MoorageAdmissionDown", gap, 12)
    yield Case("a difference of long ago", "MoorageLedgerWrong", one(DIFFERENCES, "1x40", "scheduler"), 20)
    yield Case("a restart", "MoorageLedgerWrong", one(DIFFERENCES, "2x9 0x20", "scheduler"), 15)
    lost = one(DRIFT, "0x5 3x2 0x20", "binder", kind="uncharged")
    yield Case("mended within minutes", "MoorageBooksWrong", lost, 12)
    more = one(DRIFT, "2x20", "binder", kind="overcharged")
    yield Case("a book that has more is safe", "MoorageBooksWrong", more, 15)
    garbage = one(HELD, "0x5 1x5 0x20", "binder", state="unreadable")
    yield Case("a book written anew", "MoorageReservationUnreadable", garbage, 15)
    yield Case("ill for a moment", "MoorageSharedGpuIll", one(HELD, "0x5 1x3 0x9", "binder", state="ill"), 8)
    yield Case("two did not start", "MoorageReservationsFail", binds("ReservationFailed", "0x5 2x20"), 10)
    some = binds("Refused", "0+1x60") | binds("bound", "0+6x60")
    yield Case("a seventh fails", "MoorageBindsFail", some, 40)
    yield Case("one alone fails", "MoorageBindsFail", binds("Refused", "0x5 1x60") | binds("bound", "0x60"), 25)
    yield Case("nobody binds", "MoorageBindsFail", binds("Refused", "3x60") | binds("bound", "9x60"), 40)
    gone = binds("PodGone", "0+6x60") | binds("Withdrawn", "0+6x60") | binds("bound", "0+1x60")
    yield Case("pods that went", "MoorageBindsFail", gone, 40)
    waits = one(WAITING, "500x60", "scheduler", reason="NoNodeFits")
    waits |= one(WAITING, "0x3 40x3 0x60", "scheduler", reason="Undecided")
    yield Case("a full cluster", "MooragePodsUndecided", waits, 30)
    yield Case("a little is stranded", "MoorageStranded", pool(used=8, stranded=0.5), 90)
    drained = {name: "4000000000x30 0x100" if "stranded" in name else gpus for name, gpus in pool(6, 0).items()}
    yield Case("a pool is drained for half an hour", "MoorageStranded", drained, 90)
    yield Case("a pool of nothing", "MoorageStranded", dict.fromkeys(pool(used=0, stranded=0), "0x130"), 90)
    starts = one(SILENCE, "+Inf +Inf 9x20", "binder", resource="pods")
    yield Case("a start", "MoorageWatchSilent", starts, 6)
    yield Case("a quiet watch", "MoorageWatchSilent", one(SILENCE, "30 60 90 5 60 90 5", "binder", resource="pods"), 6)
    yield Case("quick watches", "MoorageWatchLate", seconds(LAG, 0.04, 6, 40, "scheduler", resource="pods"), 30)
    yield Case("nothing is written", "MoorageWatchLate", seconds(LAG, 8, 0, 40, "scheduler", resource="pods"), 30)
    mended = one(UNREADABLE, "0x5 1x3 0x20", "scheduler", resource="queues")
    yield Case("one was mended", "MoorageObjectsUnreadable", mended, 12)
    few = requests("503", "0+1x40") | requests("201", "0+40x40")
    yield Case("a few requests fail", "MoorageApiFails", few, 30)
    conflicts = requests("409", "0+9x40") | requests("201", "0+1x40") | requests("404", "0+9x40")
    yield Case("conflicts are no failures", "MoorageApiFails", conflicts, 30)
    yield Case("refused once, at an upgrade", "MoorageForbidden", requests("403", "0x5 2x40"), 22)
    yield Case("a busy moment", "MoorageLoopLate", seconds(LOOP, 0.3, 20, 40, "binder"), 30)
    quick = seconds(REVIEWS, 0.004, 300, 40, "admission", webhook="mutate", answer="patched")
    yield Case("quick reviews", "MoorageReviewsSlow", quick, 30)
    refused = one(f"{REVIEWS}_count", "0+9x40", "admission", webhook="validate", answer="refused")
    yield Case("refusals are answers", "MoorageReviewsFail", refused | failed_review("0x40"), 30)
    yield Case("a failure of yesterday", "MoorageReviewsFail", failed_review("3x40"), 30)


def _silent_about_fragments() -> Iterator[Case]:
    yield Case("a little fits no pod", "MoorageFragmented", unusable(pieces=0.5, cpu=0.2), 90)
    yield Case("a drained node is no fragment", "MoorageFragmented", unusable(0.5, 0.2, cordoned=2.0), 90)
    yield Case("no pod waits", "MoorageFragmented", unusable(pieces=2.0, cpu=1.0, waiting="0x130"), 130)


def idle(values: str, uuid: str = "GPU-a") -> Series:
    """A pod's time of idleness; series end where a pod is busy or gone."""
    where = {"namespace": "team", "pod": "notebook", "pod_uid": "u", "uuid": uuid}
    return one("moorage_tenant_idle_seconds", values, "node-agent", **where)


def _fires_for_idle() -> Iterator[Case]:
    said = "Pod team/notebook holds a quarter of a GPU or more and leaves it idle"
    held = ({"namespace": "team", "pod": "notebook"}, said)
    yield Case("half an hour idle", "MoorageGpuHeldIdle", idle("_x9 1800+60x10"), 16, (held,))
    both = idle("_x9 1800+60x10") | idle("_x12 1800+60x10", "GPU-b")
    yield Case("two GPUs of a pod are one alert", "MoorageGpuHeldIdle", both, 18, (held,))


def _silent_about_idle() -> Iterator[Case]:
    yield Case("busy again at once", "MoorageGpuHeldIdle", idle("_x9 1800+60x3 stale _x20"), 30)
    yield Case("a pod that computes", "MoorageGpuHeldIdle", idle("_x40"), 40)


def _silent_about_workloads() -> Iterator[Case]:
    yield Case("a burst of workloads", "MoorageWorkloadsUngrouped", ungrouped("0x3 40x3 0x20"), 20)
    yield Case("an owner that may not be read", "MoorageForbidden", forbidden("get", "batches"), 40)


def _healthy() -> Series:
    """Two replicas of each component for two hours, at work."""
    made = leads("1x130", "0x130") | one("moorage_leader", "0x130", "binder", "b")
    for job, resource in (("scheduler", "pods"), ("binder", "bindrequests"), ("admission", "namespaces")):
        for instance in ("a", "b"):
            made |= one(SILENCE, "5 35 55 10x127", job, instance, resource=resource)
            made |= one(UNREADABLE, "0x130", job, instance, resource=resource)
        made |= seconds(LOOP, 0.004, 60, 130, job)
    made |= one(DIFFERENCES, "0x130", "scheduler")
    for reason, values in (("Undecided", "0 7 0x128"), ("NoNodeFits", "40x130"), ("OnItsWay", "3x130")):
        made |= one(WAITING, values, "scheduler", reason=reason)
    made |= unusable(pieces=0.4, cpu=0.2) | pool(used=9, stranded=0.1)
    made |= (
        used("gpus", "4x30 8x100", "8x130") | used("cpu_cores", "40x130", "-1x130") | owed("0x20 1000000000x5 0x105")
    )
    made |= seconds(LAG, 0.03, 60, 130, "scheduler", resource="pods")
    for kind in ("unreserved", "uncharged", "undercharged", "overcharged"):
        made |= one(DRIFT, "0x130", "binder", kind=kind)
    for state, values in (("shared", "20x130"), ("unreadable", "0x130"), ("ill", "0x130"), ("starting", "1x130")):
        made |= one(HELD, values, "binder", state=state)
    made |= binds("bound", "0+30x130") | binds("PodGone", "0+2x130") | binds("ReservationSilent", "0x60 1x70")
    made |= requests("201", "0+90x130") | requests("409", "0+3x130") | requests("timeout", "0x60 1x70")
    for webhook in ("adopt", "mutate", "validate"):
        made |= seconds(REVIEWS, 0.002, 60, 130, "admission", webhook=webhook, answer="patched")
        for answer in ("failed", "malformed"):
            made |= seconds(REVIEWS, 0.002, 0, 130, "admission", webhook=webhook, answer=answer)
    return made


FIRES: Final = (*_fires(), *_fires_for_queues(), *_fires_for_idle())
SILENT: Final = (
    *_silent(), *_silent_about_fragments(), *_silent_about_idle(), *_silent_about_workloads(), *_silent_about_queues(),
)  # fmt: skip
HEALTHY: Final = _healthy()
