"""Checks by trial, of what must be changed or refused, and of what namespaces let their tenants do with a machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from admission.manifests import WEBHOOK
from admission.settings import Guard
from cli.checks.reader import Answer, CantLook, Finding, Level, Raw, Reader, some_of
from kube.client.resources import BIND_REQUESTS, CONFIG_MAPS, PODS, Resource
from wire import names

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"
_SAFE: Final = frozenset({"baseline", "restricted"})
_SYSTEM: Final = frozenset({names.SYSTEM_NAMESPACE, names.SCALE_ADJUST_NAMESPACE, names.NODE_NAMESPACE})


async def check_namespaces(reader: Reader) -> list[Finding]:
    """Tenants' namespaces enforce Pod Security, and guard devices.

    Nothing of ours holds against a privileged pod.
    """
    spaces = await reader.items("/api/v1/namespaces")
    return [_of_reservations(spaces), _of_pod_security(spaces), *_of_guards(spaces)]


def _of_reservations(spaces: list[Raw]) -> Finding:
    name = names.RESERVATION_NAMESPACE
    there = next((space for space in spaces if space["metadata"]["name"] == name), None)
    if there is None:
        return Finding(Level.FAILED, "namespaces", f"{name} is not there: no GPU can be shared", f"create {name}")
    if _labels(there).get(_ENFORCE) not in _SAFE:
        said = f"{name} does not enforce Pod Security"
        return Finding(Level.WARNING, "namespaces", said, f"label it {_ENFORCE}=restricted")
    return Finding(Level.OK, "namespaces", f"{name} is there and enforces Pod Security")


def _of_pod_security(spaces: list[Raw]) -> Finding:
    tenants = [
        space for space in spaces if not _is_system(_name(space)) and _name(space) != names.RESERVATION_NAMESPACE
    ]
    open_ones = sorted(_name(space) for space in tenants if _labels(space).get(_ENFORCE) not in _SAFE)
    if not open_ones:
        return Finding(Level.OK, "pod security", f"{len(tenants)} namespaces enforce baseline or restricted")
    said = f"pods may be privileged, or mount the host's files, and so take any GPU, in {some_of(open_ones)}"
    do = f"label them {_ENFORCE}=baseline, or have another admission refuse such pods"
    return Finding(Level.WARNING, "pod security", said, do)


def _of_guards(spaces: list[Raw]) -> Iterator[Finding]:
    said = {_name(space): guard_said(space) for space in spaces}
    malformed = sorted(name for name, value in said.items() if value not in {None, *(guard.value for guard in Guard)})
    allowed = ", ".join(guard.value for guard in Guard)
    if malformed:
        text = f"{names.VISIBLE_DEVICES_GUARD} can't be understood in {some_of(malformed)}: pods are refused there"
        yield Finding(Level.FAILED, "device guard", text, f"set it to one of {allowed}")
    off = sorted(name for name, value in said.items() if value == Guard.OFF.value)
    if off:
        text = f"containers choose their devices by {names.ENV_VISIBLE_DEVICES} in {some_of(off)}"
        yield Finding(Level.WARNING, "device guard", text, f"set {names.VISIBLE_DEVICES_GUARD}=inject or reject there")
    if not malformed and not off:
        yield Finding(Level.OK, "device guard", "no namespace switches it off")


def guard_said(space: Raw) -> str | None:
    """What a namespace says of the guard, as admission reads it (admission/namespaces.py)."""
    annotations: dict[str, str] = space["metadata"].get("annotations") or {}
    return _labels(space).get(names.VISIBLE_DEVICES_GUARD, annotations.get(names.VISIBLE_DEVICES_GUARD))


def _is_system(name: str) -> bool:
    return name in _SYSTEM or name.startswith("kube-")


def _name(space: Raw) -> str:
    return str(space["metadata"]["name"])


def _labels(space: Raw) -> dict[str, str]:
    labels: dict[str, str] = space["metadata"].get("labels") or {}
    return labels


_NAMESPACE: Final = "default"
_NAME: Final = "moorage-check"
_CHECK: Final = "trials"
#: A policy that refuses by what an administrator set: it says nothing about anything else.
_QUEUES: Final = "'moorage-queues'"
_UNSAID: Final[Raw] = {"metadata": {}}
_WEBHOOK: Final = "see that the pods of moorage-admission run and that the API server reaches them"
_POLICY: Final = "apply the policies of this version (admission/policies.py); new ones take seconds to hold"


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Something that must be refused, by whom and in which words."""

    what: str
    by: str
    resource: Resource[Any]
    namespace: str
    body: Raw
    do: str


def _pod(*, scheduler: str, env: tuple[Raw, ...] = (), **metadata: Any) -> Raw:
    """A pod that even ``restricted`` Pod Security lets in: what refuses it is meant to be ours."""
    container = {
        "name": "main",
        "image": "none",
        "env": list(env),
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
    """The webhooks hand devices over, and what must be refused is. Raises CantLook.

    A single trial for which who asks lacks the right is left out, and told: the account of ``helm test`` makes no
    reservation pods.

    All trials are creations with ``dryRun=All``: webhooks and policies are asked as ever, nothing is stored. So they
    show that these answer, which no look at their registration can.
    """
    path = PODS.path(_NAMESPACE)
    handed = await reader.tried(path, _manifest(PODS, _share()))
    if handed.was_not_allowed:
        raise CantLook(f"POST {path}: {handed.message}")
    chosen = await reader.tried(PODS.path(_NAMESPACE), _manifest(PODS, _chooser()))
    space = await reader.get(f"/api/v1/namespaces/{_NAMESPACE}")
    findings = [_of_hand_over(handed), _of_guard(chosen, is_off_here=guard_said(space or _UNSAID) == Guard.OFF.value)]
    for trial in _TRIALS:
        answer = await reader.tried(trial.resource.path(trial.namespace), _manifest(trial.resource, trial.body))
        findings.append(_of_refusal(trial, answer))
    return findings


def _share() -> Raw:
    return _pod(scheduler=names.SCHEDULER_NAME, annotations={names.GPU_FRACTION: "0.5"})


def _chooser() -> Raw:
    """A pod without GPUs that would see all of them."""
    return _pod(scheduler=names.SCHEDULER_NAME, env=({"name": names.ENV_VISIBLE_DEVICES, "value": "all"},))


def _manifest(resource: Resource[Any], body: Raw) -> Raw:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _of_hand_over(answer: Answer) -> Finding:
    if _is_refused_by_others(answer):
        return _untried("a pod that asks for a share", answer)
    if answer.status >= 400:
        return Finding(Level.FAILED, _CHECK, f"a pod that asks for a share was refused: {answer.message}", _WEBHOOK)
    env = answer.body["spec"]["containers"][0].get("env") or ()
    if not any(entry["name"] == names.ENV_VISIBLE_DEVICES and entry.get("valueFrom") for entry in env):
        return Finding(Level.FAILED, _CHECK, "a share is not handed over: the mutating webhook was not asked", _WEBHOOK)
    return Finding(Level.OK, _CHECK, "a pod that asks for a share is let in, and told where it reads its devices")


def _of_guard(answer: Answer, *, is_off_here: bool) -> Finding:
    """A pod that chooses devices is refused or changed, unless its namespace lets it."""
    what = f"a pod that sets {names.ENV_VISIBLE_DEVICES}=all"
    if _is_refused_by_others(answer):
        return _untried(what, answer)
    if answer.status >= 400 and "failed calling webhook" in answer.message:
        return Finding(Level.FAILED, _CHECK, f"{what} is refused by a failed webhook call: {answer.message}", _WEBHOOK)
    if answer.status >= 400:
        return Finding(Level.OK, _CHECK, f"{what} is refused")
    env = answer.body["spec"]["containers"][0].get("env") or ()
    if all(entry.get("value") != "all" for entry in env if entry["name"] == names.ENV_VISIBLE_DEVICES):
        return Finding(Level.OK, _CHECK, f"{what} sees none")
    if is_off_here:
        do = f"set {names.VISIBLE_DEVICES_GUARD}=inject or reject there"
        return Finding(Level.WARNING, _CHECK, f"{what} is let in, as the namespace {_NAMESPACE} says", do)
    do = "start moorage admission with --visible-devices-guard inject or reject"
    return Finding(Level.FAILED, _CHECK, f"{what} is let in, and sees all GPUs of its node", do)


def _of_refusal(trial: _Trial, answer: Answer) -> Finding:
    if answer.was_not_allowed:
        do = "run moorage admin check as an administrator to have it tried"
        return Finding(Level.WARNING, _CHECK, f"{trial.what} was not tried: {answer.message}", do)
    if trial.by in answer.message:
        return Finding(Level.OK, _CHECK, f"{trial.what} is refused")
    if _is_refused_by_others(answer):
        return _untried(trial.what, answer)
    how = f"refused for another reason: {answer.message}" if answer.status >= 400 else "let in"
    return Finding(Level.FAILED, _CHECK, f"{trial.what} is {how}", trial.do)


def _is_refused_by_others(answer: Answer) -> bool:
    """Whether somebody else's admission, or a namespace's queues, came first, so that nothing is known of ours.

    What is not found (404) is no matter of admission.
    """
    is_ours = WEBHOOK in answer.message or "'moorage-" in answer.message.replace(_QUEUES, "")
    return answer.status >= 400 and answer.status != 404 and not is_ours


def _untried(what: str, answer: Answer) -> Finding:
    said = f"{what} could not be tried: others refused it first: {answer.message}"
    do = "let a trial pod by that name in (dry run), or see for yourself"
    return Finding(Level.WARNING, _CHECK, said, do)
