"""The guard of NVIDIA_VISIBLE_DEVICES: who was given no shared device chooses none (invariant S3).

Under the nvidia container runtime this variable decides which devices a container sees. Images built for CUDA set
it to ``all``, and a user's entry wins over the device plugin's. KAI's counterpart is its opt-in ``deviceaccess``
(kai-contract 1.3), whose messages are used here; the guard is on by default.

What ``envFrom`` brings in is in objects that admission does not see. Elsewhere an explicit entry wins over it, but
not in a container that gets whole GPUs, since that takes the variable from the device plugin, which comes first of all
(kai-contract 13). So ``reject`` refuses ``envFrom`` there, where it could set the variable; ``inject`` lets it be.

A container that asks NVIDIA's device plugin for GPUs keeps what that says. A node that lacks what is asked for has no
plugin to say it, so such a container comes to its node by a scheduler, or not at all.

Not covered, because admission can't see it or node settings decide: hostPath device files, privileged containers, CDI
annotations and devices listed by volume mounts, and pods of other schedulers under ``inject`` (docs/security.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from admission.handover import with_env_first
from admission.raw_pod import Raw, asks_for_gpu, env_of, rewritten, walk, with_list
from admission.settings import Guard
from wire import names

_HARMLESS: Final = frozenset((names.VISIBLE_DEVICES_NONE, "none"))
_VOID: Final = {"name": names.ENV_VISIBLE_DEVICES, "value": names.VISIBLE_DEVICES_NONE}


def guarded(pod: Raw, *, shared: Collection[str], guard: Guard, renamed: Collection[str] = ()) -> Raw:
    """Return the pod with every container guarded whose key is not in ``shared``: those get their devices from us.

    ``renamed``: resources of NVIDIA's device plugin that have other names than its own.
    """
    return rewritten(
        pod, lambda ref, container: container if ref.key in shared else _guarded(container, guard, renamed)
    )


def guarded_ephemeral(pod: Raw, *, known: Collection[str], guard: Guard) -> Raw:
    """Return the pod with its new ephemeral containers guarded: those whose name is not ``known``."""
    before = pod["spec"].get("ephemeralContainers") or []
    after = [c if c.get("name") in known else _guarded(c, guard, ()) for c in before]
    return {**pod, "spec": with_list(pod["spec"], "ephemeralContainers", after)}


def forbidden(pod: Raw, *, shared: Collection[str], guard: Guard, renamed: Collection[str] = ()) -> str | None:
    """Say what a container outside ``shared`` sets that it must not, in KAI's words; None if none does."""
    containers = [container for ref, container in walk(pod) if ref.key not in shared]
    served = [container for container in containers if asks_for_gpu(container, renamed)]
    found = (_forbidden(container) for container in containers)
    unseen = (_unseen(container) for container in served if guard is Guard.REJECT)
    past = (_past_schedulers(container, pod["spec"].get("nodeName")) for container in served)
    return _first((*found, *unseen, *past))


def forbidden_ephemeral(pod: Raw, *, known: Collection[str]) -> str | None:
    """Say what a new ephemeral container sets that it must not; None if none does."""
    containers = pod["spec"].get("ephemeralContainers") or ()
    return _first(_forbidden(container) for container in containers if container.get("name") not in known)


def _guarded(container: Raw, guard: Guard, renamed: Collection[str]) -> Raw:
    entries = _entries(container)
    if guard is Guard.OFF or (entries and (guard is Guard.REJECT or _forbidden(container) is None)):
        return container
    if asks_for_gpu(container, renamed):
        kept = [entry for entry in env_of(container) if entry.get("name") != names.ENV_VISIBLE_DEVICES]
        return with_list(container, "env", kept)
    return with_env_first(container, [_VOID])


def _entries(container: Raw) -> list[Raw]:
    return [entry for entry in env_of(container) if entry.get("name") == names.ENV_VISIBLE_DEVICES]


def _forbidden(container: Raw) -> str | None:
    for entry in _entries(container):
        subject = (
            f"container {container.get('name', '')} has an environment variable {names.ENV_VISIBLE_DEVICES} defined"
        )
        if entry.get("valueFrom"):
            return (
                f"{subject} with a valueFrom reference. "
                "This is forbidden due to possible conflicts with Nvidia's device plugin"
            )
        if entry.get("value", "") not in _HARMLESS:
            return (
                f"{subject} with a value of {entry.get('value', '')}. "
                "This is forbidden due to conflicts with Nvidia's device plugin. "
                "The only values that are allowed are 'void' or 'none'"
            )
    return None


def _unseen(container: Raw) -> str | None:
    """Say which ``envFrom`` could choose the devices of a container that gets whole GPUs."""
    if _entries(container):
        return None
    for index, source in enumerate(container.get("envFrom") or ()):
        prefix = source.get("prefix") or ""
        if prefix != names.ENV_VISIBLE_DEVICES and names.ENV_VISIBLE_DEVICES.startswith(prefix):
            return (
                f"container {container.get('name', '')} gets GPUs and takes its environment from an object that could "
                f"set {names.ENV_VISIBLE_DEVICES} (envFrom[{index}].prefix is '{prefix}'; allowed: a prefix with "
                f"which no key gives {names.ENV_VISIBLE_DEVICES}, or single entries by env)"
            )
    return None


def _past_schedulers(container: Raw, node: str | None) -> str | None:
    """Say that a container asks for GPUs on a node that its pod brings along.

    No scheduler has looked whether the node has that resource. Where it has not (GPUs cut in another way, or handed out
    by claims), kubelet drops the ask, no plugin sets the variable, and the image's own ``all`` shows every device.
    """
    if not node:
        return None
    return (
        f"container {container.get('name', '')} asks for GPUs on a node that no scheduler chose "
        f"(spec.nodeName is '{node}'; allowed: none, where a container asks for GPUs)"
    )


def _first(texts: Iterable[str | None]) -> str | None:
    return next((text for text in texts if text is not None), None)
