"""Which cluster a command reaches, and as whom: kubectl's options, in one group for all commands that read one.

Only argparse is imported here. What opens a connection by them is runtime/client.py.
"""

from __future__ import annotations

import argparse
import re
from typing import Final, NamedTuple

from runtime.text import BadInput

_SERVER: Final = re.compile(r"https?://[^\s/@]+(/\S*)?")
_DURATION: Final = "a time as in 500ms, 5s, 2m, 1h or 1m30s, whole seconds as in 5, or 0 for no limit"


class Where(NamedTuple):
    """The values of the options; "" where one is not given, ``request_timeout_s`` None."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    server: str = ""
    ca_file: str = ""
    token_file: str = ""
    act_as: str = ""
    act_as_groups: tuple[str, ...] = ()
    request_timeout_s: float | None = None


def add(parser: argparse.ArgumentParser) -> None:
    """Add the group; ``chosen`` reads it."""
    group = parser.add_argument_group(
        "connection", "Default, as in kubectl: KUBECONFIG, ~/.kube/config, the pod's account."
    )
    group.add_argument("--kubeconfig", default="", metavar="FILE", help="kubeconfig file")
    group.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")
    group.add_argument("--cluster", default="", metavar="NAME", help="cluster of the kubeconfig")
    group.add_argument("-s", "--server", default="", metavar="URL", help="address of the API server")
    group.add_argument(
        "--ca-file", "--certificate-authority", default="", metavar="PEM", help="CA certificates of the API server"
    )
    group.add_argument("--token-file", default="", metavar="FILE", help="file with a bearer token")
    group.add_argument("--as", dest="act_as", default="", metavar="USER", help="user to impersonate")
    group.add_argument(
        "--as-group", dest="act_as_groups", action="append", default=[], metavar="GROUP", help="group to impersonate"
    )
    group.add_argument("--request-timeout", default="", metavar="TIME", help="limit of one request: 5s, 2m; 0 for none")
    #: Taken of old, and without effect: components have it.
    group.add_argument("--log-level", help=argparse.SUPPRESS)


def chosen(arguments: argparse.Namespace) -> Where:
    """Read the options. Raises BadInput for a value that can't be."""
    server: str = arguments.server
    if server and not _SERVER.fullmatch(server):
        raise BadInput(f"--server {server}: not a URL of an API server; write https://HOST:PORT")
    groups = tuple(arguments.act_as_groups)
    for option, value in (("--as", arguments.act_as), *(("--as-group", group) for group in groups)):
        if not value.isprintable():
            raise BadInput(f"{option} {value!r}: allowed is printable text")
    if groups and not arguments.act_as:
        raise BadInput("--as-group: allowed with --as")
    return Where(
        kubeconfig=arguments.kubeconfig,
        context=arguments.context,
        cluster=arguments.cluster,
        server=server,
        ca_file=arguments.ca_file,
        token_file=arguments.token_file,
        act_as=arguments.act_as,
        act_as_groups=groups,
        request_timeout_s=_limit(arguments.request_timeout),
    )


def refuse_beside_files(arguments: argparse.Namespace) -> None:
    """Raise BadInput for a command line that names files to read (-f) and a cluster, too."""
    if arguments.filename and chosen(arguments) != Where():
        raise BadInput("-f: not with options of a connection such as --context; files are read, or a cluster")


def _limit(text: str) -> float | None:
    if not text:
        return None
    from runtime import text as durations

    try:
        seconds = durations.seconds(text)
    except ValueError as error:
        raise BadInput(f"--request-timeout {text}: allowed is {_DURATION}") from error
    return seconds or float("inf")
