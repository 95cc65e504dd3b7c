"""Making a reservation pod: created once under its one name, even if the answer is lost."""

from __future__ import annotations

from typing import Final

import anyio

from binder.core import reservation_pod
from binder.core.reservation_pod import ReservationTemplate
from gpu import reservation as reservations
from gpu.attempts import Cause
from gpu.book import Book
from gpu.reservation import Reservation, name_for
from kube import books
from kube.client.api import Api
from kube.client.errors import AlreadyExists, ApiError, NotFound
from kube.client.resources import PODS
from sharing.failure import Failure
from sharing.outcome import Failed

_PAUSE_S: Final = 1.0


async def make(
    api: Api,
    template: ReservationTemplate,
    *,
    node: str,
    group: str,
    book: Book,
    resource: str,
    opened_for: str = "",
) -> Reservation | Failed:
    """Create the reservation pod with this book, or find the one that is there, whose book may be another.

    A creation whose outcome is unknown is done again: the name tells whether it had landed. Raises ApiError when the
    server can't be asked.
    """
    manifest = reservation_pod.manifest(
        template, node=node, group=group, book=book, resource=resource, opened_for=opened_for
    )
    held: Reservation | None = None
    while held is None:
        try:
            held = reservations.read(await api.create(PODS, manifest, namespace=template.namespace))
        except AlreadyExists:
            held = await books.read(api, template.namespace, name_for(node, group))
        except NotFound as error:
            return Failed(Failure(cause=Cause.REFUSED, detail=f"group {group}: reservation pod: {error}"))
        except ApiError as error:
            if not error.outcome_unknown:
                raise
            await anyio.sleep(_PAUSE_S)
    if held.group != group:
        detail = f"group {group}: reservation pod {held.name} is another group's"
        return Failed(Failure(cause=Cause.NOT_JOINABLE, detail=detail))
    return held
