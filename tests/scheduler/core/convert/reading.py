from __future__ import annotations

from scheduler.core.convert.pods import pod_record
from scheduler.core.model.records import PodRecord
from scheduler.core.model.settings import Settings
from wire.core import Pod


def read(obj: Pod) -> PodRecord:
    record = pod_record(obj, Settings())
    assert record is not None
    return record
