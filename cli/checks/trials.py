"""Trials of what is in force: things are created that must be changed or refused, and the server keeps none of them.

All with ``dryRun=All``: webhooks and policies are asked as ever, nothing is stored. So it shows that they answer, which
no look at their registration can.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from cli.checks.finding import Finding, Level
from cli.checks.reader import Answer, Raw, Reader
from kube.resources import BIND_REQUESTS, CONFIG_MAPS, PODS, Resource
from wire import names

_NAMESPACE: Final = "default"
_NAME: Final = "moorage-check"
_CHECK: Final = "trials"
_WEBHOOK: Final = "see that the pods of moorage-admission run and that the API server reaches them"
_POLICY: Final = "apply the policies of this version (admission/policies.py)"


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be refused, by whom and in which words."""

    what: str
    by: str
    resource: Resource[Any]
    namespace: str
    body: Raw
    do: str


def _pod(*, scheduler: str, **metadata: Any) -> Raw:
    """A pod that even ``restricted`` Pod Security lets in: what refuses it is meant to be ours."""
    container = {
        "name": "main",
        "image": "none",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "schedulerName": scheduler,
        "containers": [container],
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
    }
    return {"metadata": {"name": _NAME, **metadata}, "spec": spec}


_TRIALS: Final = (
    _Trial(
        what="a malformed ask for a share",
        by=f"{names.GPU_FRACTION} annotation value must be",
        resource=PODS,
        namespace=_NAMESPACE,
        body=_pod(scheduler=names.SCHEDULER_NAME, annotations={names.GPU_FRACTION: "7"}),
        do=_WEBHOOK,
    ),
    _Trial(
        what="a forged group label",
        by="moorage-protected-keys",
        resource=PODS,
        namespace=_NAMESPACE,
        body=_pod(scheduler=_NAME, labels={names.GPU_GROUP_LABEL: _NAME}),
        do=_POLICY,
    ),
    _Trial(
        what="a reservation pod that is none of ours",
        by="moorage-reservations",
        resource=PODS,
        namespace=names.RESERVATION_NAMESPACE,
        body=_pod(scheduler=_NAME, labels={names.APP_LABEL: names.RESERVATION_APP}),
        do=_POLICY,
    ),
    _Trial(
        what="a BindRequest that is none of ours",
        by="moorage-hand-over",
        resource=BIND_REQUESTS,
        namespace=_NAMESPACE,
        body={"metadata": {"name": _NAME}, "spec": {"podName": _NAME, "selectedNode": _NAME}},
        do=_POLICY,
    ),
    _Trial(
        what="a ConfigMap that names a container's devices",
        by="moorage-config-maps",
        resource=CONFIG_MAPS,
        namespace=_NAMESPACE,
        body={"metadata": {"name": f"{_NAME}-0000000-shared-gpu-0"}},
        do=_POLICY,
    ),
)


async def check_trials(reader: Reader) -> list[Finding]:
    """The webhooks hand devices over, and what must be refused is."""
    handed = await reader.tried(PODS.path(_NAMESPACE), _manifest(PODS, _share()))
    findings = [_of_hand_over(handed)]
    for trial in _TRIALS:
        answer = await reader.tried(trial.resource.path(trial.namespace), _manifest(trial.resource, trial.body))
        findings.append(_of_refusal(trial, answer))
    return findings


def _share() -> Raw:
    return _pod(scheduler=names.SCHEDULER_NAME, annotations={names.GPU_FRACTION: "0.5"})


def _manifest(resource: Resource[Any], body: Raw) -> Raw:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _of_hand_over(answer: Answer) -> Finding:
    if answer.status >= 400:
        return Finding(Level.FAILED, _CHECK, f"a pod that asks for a share was refused: {answer.message}", _WEBHOOK)
    env = answer.body["spec"]["containers"][0].get("env") or ()
    if not any(entry["name"] == names.ENV_VISIBLE_DEVICES and entry.get("valueFrom") for entry in env):
        return Finding(Level.FAILED, _CHECK, "a share is not handed over: the mutating webhook was not asked", _WEBHOOK)
    return Finding(Level.OK, _CHECK, "a pod that asks for a share is let in, and told where it reads its devices")


def _of_refusal(trial: _Trial, answer: Answer) -> Finding:
    if trial.by in answer.message:
        return Finding(Level.OK, _CHECK, f"{trial.what} is refused")
    how = f"refused otherwise: {answer.message}" if answer.status >= 400 else "let in"
    return Finding(Level.FAILED, _CHECK, f"{trial.what} is {how}", trial.do)
