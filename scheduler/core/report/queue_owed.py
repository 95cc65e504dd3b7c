"""GPUs that the pods of a queue wait for and that its quota guarantees: above zero for long, the queue is starved."""

from __future__ import annotations

from scheduler.core.model.quota import UNLIMITED, Resources
from scheduler.core.queues.accounts import Accounts


def owed_nano_gpus(accounts: Accounts) -> list[int]:
    """Nano-GPU by number of the queue: what its pods, and those below it, wait for within its quota and all limits.

    Pods that wait in a queue with children can't be placed, so they count for nothing. A quota without end guarantees
    no amount.
    """
    queues, of = accounts.tree.queues, accounts.of
    takes = [account.asked.gpu_nano - account.kept.gpu_nano for account in of]
    for queue in reversed(queues):  # children come after their parents
        if queue.children:
            takes[queue.number] = sum(takes[child] for child in queue.children)
        takes[queue.number] = max(0, min(takes[queue.number], _left(queue.record.limit, of[queue.number].held)))
    room: list[int] = []
    owed: list[int] = []
    for queue in queues:
        held, record = of[queue.number].held, queue.record
        left = _left(record.limit, held)
        room.append(left if queue.parent < 0 else min(left, room[queue.parent]))
        guaranteed = 0 if record.quota.gpu_nano >= UNLIMITED else _left(record.quota, held)
        owed.append(max(0, min(takes[queue.number], guaranteed, room[-1])))
    return owed


def _left(most: Resources, held: Resources) -> int:
    return most.gpu_nano - held.gpu_nano
