"""How each namespace wants NVIDIA_VISIBLE_DEVICES guarded: the sink of a reflector over namespaces.

A namespace says it by the label ``moorage.dev/visible-devices-guard``, or by the annotation of that name. What can't
be understood is not guessed: pods of such a namespace are refused with a message that names the value.
"""

from __future__ import annotations

from collections.abc import Sequence

from admission.settings import Guard
from gpu.refusal import Mistake, Refusal, shown
from wire import names
from wire.core import Namespace


class NamespaceGuards:
    """Guards by namespace. One that is not known (yet), or says nothing, has the default."""

    def __init__(self, default: Guard) -> None:
        self._default = default
        self._said: dict[str, str] = {}

    def keep(self, obj: Namespace) -> tuple[str, str | None]:
        """A namespace's name, and what it says."""
        return obj.metadata.name, _said(obj)

    async def replace(self, kept: Sequence[tuple[str, str | None]]) -> None:
        """Take over the whole truth as of a list."""
        self._said = {name: said for name, said in kept if said is not None}

    def upsert(self, obj: Namespace) -> None:
        """Take over one namespace."""
        said = _said(obj)
        if said is None:
            self._said.pop(obj.metadata.name, None)
        else:
            self._said[obj.metadata.name] = said

    def delete(self, obj: Namespace) -> None:
        """Forget a namespace."""
        self._said.pop(obj.metadata.name, None)

    def __call__(self, namespace: str) -> Guard | Refusal:
        """Return the guard of a namespace, or why its setting can't be understood."""
        said = self._said.get(namespace)
        if said is None:
            return self._default
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


def _said(namespace: Namespace) -> str | None:
    for texts in (namespace.metadata.labels, namespace.metadata.annotations):
        if texts and names.VISIBLE_DEVICES_GUARD in texts:
            return texts[names.VISIBLE_DEVICES_GUARD]
    return None
