"""LeaderWorkerSet: groups of a leader and workers (kubernetes-sigs/lws: API reference, labels and annotations)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from simulator.controllers.pods import Charge, Json, Placed, child, number, placed, read_template, stored
from wire import gangs

_PATH: Final = "spec.leaderWorkerTemplate"


def expand(lws: Json, charge: Charge) -> Iterator[Placed]:
    """Yield the pods of all groups, a leader before its workers, which come at once. Raises Malformed."""
    spec = child(lws, "spec")
    written = child(spec, "leaderWorkerTemplate")
    replicas, size = number(spec, "replicas", "spec", 1), number(written, "size", _PATH, 1)
    worker = read_template(child(written, "workerTemplate"), f"{_PATH}.workerTemplate")
    own = child(written, "leaderTemplate")
    leader = worker if own is None else read_template(own, f"{_PATH}.leaderTemplate")
    charge(replicas, "spec.replicas", leader)
    charge(replicas * max(0, size - 1), f"{_PATH}.size", worker)
    name = lws["metadata"]["name"]
    leaders = stored("apps/v1", "StatefulSet", name, above=lws)
    for index in range(replicas if size else 0):
        called = f"{name}-{index}"
        labels, annotations = _marks(name, index, 0), {gangs.LWS_SIZE: str(size)}
        extra = {"hostname": called, "subdomain": name}
        yield placed([leaders, lws], leader, name=called, labels=labels, annotations=annotations, extra=extra)
        pod = stored("v1", "Pod", called, above=leaders)
        workers = [stored("apps/v1", "StatefulSet", called, above=pod), pod, leaders, lws]
        for at in range(1, size):
            how: dict[str, Any] = {"labels": _marks(name, index, at), "annotations": annotations}
            extra = {"hostname": f"{called}-{at}", "subdomain": name}
            yield placed(workers, worker, name=f"{called}-{at}", extra=extra, **how)


def _marks(name: str, group: int, worker: int) -> dict[str, str]:
    return {gangs.LWS_NAME: name, gangs.LWS_GROUP_INDEX: str(group), gangs.LWS_WORKER_INDEX: str(worker)}
