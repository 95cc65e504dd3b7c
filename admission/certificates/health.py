"""Whether a replica is ready as far as its certificate goes, and what an administrator should know: sentences."""

from __future__ import annotations

import datetime
from typing import Final

import msgspec

from admission.certificates.pair import Pair
from admission.certificates.view import View, followed_in_ns, good, is_trusted, stands, trusts
from wire import names

_SECRET: Final = f"the Secret {names.SYSTEM_NAMESPACE}/{names.CERTIFICATES_SECRET}"
_S: Final = 1_000_000_000


class Health(msgspec.Struct, frozen=True):
    """``unready``: why reviews can't be answered, "" if they can. ``warnings``: what will have to be seen to."""

    unready: str
    warnings: tuple[str, ...] = ()


def health(view: View) -> Health:
    """Judge a view. A configuration that does not exist asks nobody, so there is nothing to wait for."""
    return Health(_unready(view), tuple(_warnings(view)))


def _unready(view: View) -> str:
    served = view.served
    if served is None:
        return (
            f"there is no certificate: {_SECRET} does not exist" if view.held is None else "there is no certificate yet"
        )
    if missing := sorted(view.names - served.names):
        return f"the certificate is not for {', '.join(missing)}"
    if not served.is_valid(view.now_s):
        return _not_valid(view, served)
    if not stands(view, served):
        lacking = [one.name for one in view.standing if not all(trusts(each, served.authority) for each in one.bundles)]
        return f"the CA of the certificate is not in {' and '.join(lacking)} yet"
    is_current = view.held is not None and view.held.current == served
    if not is_current and not is_trusted(view, served):
        wait_s = -(-followed_in_ns(view, served) // _S)
        return f"the API servers are given {wait_s} more seconds to trust the new certificate"
    return ""


def _not_valid(view: View, pair: Pair) -> str:
    if view.now_s < pair.not_before_s:
        begins, now = _date(pair.not_before_s), _date(view.now_s)
        return f"the certificate is valid from {begins}, and for the API server it is {now}"
    return f"the certificate ended on {_date(pair.not_after_s)}"


def _warnings(view: View) -> list[str]:
    said = []
    if view.held is None:
        said.append(f"{_SECRET} does not exist, so nothing can be kept: apply admission/rbac.yaml, which brings it")
    elif view.held.unreadable:
        said.append(f"{_SECRET} holds what is no certificate of ours, and it is replaced: {view.held.unreadable}")
    said += [
        f"{one.name} has the annotation {one.injected_by}, so its caBundle is left to whom that names: take the "
        "annotation away, or give --certificate and --key"
        for one in view.standing
        if one.injected_by
    ]
    served = good(view, view.served)
    if served is not None and view.now_s >= served.not_after_s - served.life_s // 12:
        said.append(f"the certificate ends on {_date(served.not_after_s)}, and its successor is not in use yet")
    return said


def _date(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
