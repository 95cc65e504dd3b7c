"""Whether a pod holds nothing any more, by its status: judged alike wherever its share is counted."""

from __future__ import annotations

from typing import Final

from wire import names
from wire.core import ContainerStatus, PodStatus

_TERMINAL: Final = frozenset({names.SUCCEEDED, names.FAILED})
#: Pod garbage collection marks pods of machines that are gone so, before it deletes them by force (KEP-3329).
_COLLECTED: Final = ("DisruptionTarget", "True", "DeletionByPodGC")


def has_ended(status: PodStatus) -> bool:
    """Whether none of its containers runs or will run again (protocol.md, step 5: *ended*).

    Only a terminal phase says so, unless a container status contradicts it (one is marked Failed while it still ends).
    That all containers have terminated does not, be the pod deleted or not: kubelet goes on saying so of a container
    that it is just restarting, and a pod that is deleted in that moment runs for its whole grace period.
    Nor does Failed as pod garbage collection writes it: nobody asked the kubelet, and the machine may come back.
    """
    if status.phase not in _TERMINAL or _is_collected(status):
        return False
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return not any(_is_running(each) for each in statuses)


def _is_collected(status: PodStatus) -> bool:
    return any((each.type, each.status, each.reason) == _COLLECTED for each in status.conditions or ())


def _is_running(status: ContainerStatus) -> bool:
    return status.state is not None and status.state.running is not None
