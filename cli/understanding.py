"""What Moorage makes of a pod, offline: its request in the native form, or the refusal of admission."""

from __future__ import annotations

from gpu import room
from gpu.dialects import combine
from gpu.dialects.settings import DialectSettings
from gpu.refusal import Refusal
from gpu.translation import Translation
from wire.core import Pod


def understood(pod: Pod, settings: DialectSettings) -> Translation | Refusal:
    """Translate a pod from its own dialect; one without room for what a Binding writes is refused as well."""
    translation = combine.translate(pod, settings)
    if isinstance(translation, Refusal):
        return translation
    return room.cramped(pod.metadata.annotations, translation) or translation
