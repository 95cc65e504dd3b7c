"""What each namespace chooses for its pods: the sink of a reflector over namespaces.

How NVIDIA_VISIBLE_DEVICES is guarded it says by the label ``moorage.dev/visible-devices-guard``, or by the annotation
of that name; how dialects are read by the annotation ``moorage.dev/dialects``, over the cluster's settings. What can't
be understood is not guessed: pods of such a namespace are refused with a message that names the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from admission.settings import Choices, Guard
from gpu.dialects import settings_file
from gpu.translation import Mistake, Refusal, shown
from wire import names
from wire.core import Namespace


class NamespaceChoices:
    """Choices by namespace. One that is not known (yet), or says nothing, has the default."""

    def __init__(self, default: Choices) -> None:
        self._default = default
        self._chosen: dict[str, Choices | Refusal] = {}

    def keep(self, obj: Namespace) -> tuple[str, Choices | Refusal]:
        """A namespace's name, and what it chooses."""
        return obj.metadata.name, self._choices(obj)

    async def replace(self, kept: Sequence[tuple[str, Choices | Refusal]]) -> None:
        """Take over the whole truth as of a list."""
        self._chosen = {name: choices for name, choices in kept if choices is not self._default}

    def upsert(self, obj: Namespace) -> None:
        """Take over one namespace."""
        name, choices = self.keep(obj)
        if choices is self._default:
            self._chosen.pop(name, None)
        else:
            self._chosen[name] = choices

    def delete(self, obj: Namespace) -> None:
        """Forget a namespace."""
        self._chosen.pop(obj.metadata.name, None)

    def __call__(self, namespace: str) -> Choices | Refusal:
        """Return what a namespace chooses, or why that can't be understood."""
        return self._chosen.get(namespace, self._default)

    def _choices(self, namespace: Namespace) -> Choices | Refusal:
        choices = self._default
        said = _said(namespace)
        if said is not None:
            guard = _guard(namespace.metadata.name, said)
            if isinstance(guard, Refusal):
                return guard
            choices = msgspec.structs.replace(choices, guard=guard)
        written = (namespace.metadata.annotations or {}).get(names.DIALECTS)
        if written is not None:
            dialects = settings_file.of_namespace(written, choices.dialects)
            if isinstance(dialects, Refusal):
                return _of_dialects(namespace.metadata.name, dialects)
            choices = msgspec.structs.replace(choices, dialects=dialects)
        return choices


def _said(namespace: Namespace) -> str | None:
    for texts in (namespace.metadata.labels, namespace.metadata.annotations):
        if texts and names.VISIBLE_DEVICES_GUARD in texts:
            return texts[names.VISIBLE_DEVICES_GUARD]
    return None


def _guard(namespace: str, said: str) -> Guard | Refusal:
    try:
        return Guard(said)
    except ValueError:
        return Refusal(
            code=Mistake.MALFORMED,
            field=names.VISIBLE_DEVICES_GUARD,
            value=shown(said),
            message=f"the namespace {namespace} does not say how NVIDIA_VISIBLE_DEVICES is to be guarded",
            allowed=", ".join(guard.value for guard in Guard),
        )


def _of_dialects(namespace: str, refusal: Refusal) -> Refusal:
    """What is wrong is the administrator's, and not the pod's."""
    where = f"the annotation {names.DIALECTS} of the namespace {namespace} can't be read"
    return msgspec.structs.replace(refusal, message=f"{where}: {refusal.message}")
