"""Has a scheduler explain a group, through the API server's service proxy, with the user's own token.

The scheduler may not be reached: the service is off, the user has no token (a client certificate says who they are),
may not use the proxy, or acts as somebody else, which a token can't say. Then there is no answer, and a reason. Only
where no scheduler of the cluster explains there is none: nothing has failed.
"""

from __future__ import annotations

import argparse
from typing import Final
from urllib.parse import quote

import msgspec

from kube.client.config import Credentials
from kube.client.errors import ApiError
from kube.client.http_reads import HttpReads
from kube.client.transport import Response
from runtime.client import Reached
from runtime.text import BadInput
from ui.explain.explanation import Whole
from ui.explain.questions import Asked
from wire import names

#: Has the token: the proxy takes Authorization away (ui/explain/server.py).
TOKEN_HEADER: Final = "X-Moorage-Authorization"  # noqa: S105 - the name of a header
_SERVICES: Final = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services"
_SERVICE: Final = f"{_SERVICES}/{names.EXPLAIN_SERVICE}"
_PATH: Final = f"{_SERVICES}/https:{names.EXPLAIN_SERVICE}:explain/proxy/explain"
#: The scheduler takes 8 s at most.
_TIMEOUT_S: Final = 10.0
#: What the scheduler says of the question, not of itself.
_OF_THE_QUESTION: Final = frozenset({400, 404})
_ACT_AS: Final = "Impersonate-"


class NoAnswer(Exception):
    """Raised where the scheduler does not answer. The message says why."""


class NotServed(NoAnswer):
    """Raised where no scheduler of the cluster explains: the Service does not exist."""


class CanNotAsk(NoAnswer):
    """Raised where nobody was asked, as these credentials can't be passed on."""


async def ask(cluster: Reached, arguments: argparse.Namespace, namespace: str) -> Whole:
    """Ask the scheduler what the arguments name. Raises NoAnswer, and BadInput for what it refuses."""
    asked = Asked(kind=arguments.what, namespace=namespace, name=arguments.names[0], supposed=tuple(arguments.what_if))
    try:
        return await passed_on(cluster.credentials, asked)
    except CanNotAsk as why:
        if await _is_served(cluster):
            raise
        raise NotServed(str(why)) from why


async def _is_served(cluster: Reached) -> bool:
    """Whether there is a scheduler to ask, as far as these credentials may know."""
    try:
        found = await cluster.transport.request("GET", _SERVICE, query={}, timeout_s=_TIMEOUT_S)
    except (ApiError, OSError, ValueError):
        return True
    return found.status != 404


async def passed_on(credentials: Credentials, asked: Asked) -> Whole:
    """Ask the scheduler as the owner of these credentials. Raises NoAnswer, and BadInput for what it refuses."""
    if any(name.startswith(_ACT_AS) for name, _ in credentials.headers):
        raise CanNotAsk("--as can't be passed on to it")
    token = "" if credentials.authorization is None else await credentials.authorization()
    if not token.lower().startswith("bearer "):
        raise CanNotAsk("it needs a bearer token, and these credentials have none")
    path = "/".join((_PATH, *(quote(part, safe="") for part in (asked.kind, asked.namespace, asked.name))))
    query = {"what-if": "\n".join(asked.supposed)} if asked.supposed else {}
    shown = msgspec.structs.replace(credentials, headers=(*credentials.headers, (TOKEN_HEADER, token)))
    try:
        async with HttpReads(shown, user_agent="moorage-explain") as transport:
            return _read(await transport.request("GET", path, query=query, timeout_s=_TIMEOUT_S))
    except (ApiError, OSError, ValueError) as error:
        raise NoAnswer(str(error)) from error


class _Refusal(msgspec.Struct):
    """``error``: of the scheduler; ``message``: of the API server, where it does not get as far."""

    error: str = ""
    message: str = ""


def _read(answer: Response) -> Whole:
    try:
        if answer.status == 200:
            return msgspec.json.decode(answer.body, type=Whole)
        said = msgspec.json.decode(answer.body, type=_Refusal)
    except msgspec.MsgspecError as error:
        raise NoAnswer(f"HTTP {answer.status} in a form of another version") from error
    if answer.status in _OF_THE_QUESTION and said.error:
        raise BadInput(said.error)
    if answer.status == 404:  # of the API server
        raise NotServed(said.message)
    raise NoAnswer(f"HTTP {answer.status}: {said.error or said.message}")
