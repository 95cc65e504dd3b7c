"""Secrets, which only kubelets read: a user may put an environment into one."""

from __future__ import annotations

import base64

import msgspec

from kube.client.resources import Resource
from wire.core import ObjectMeta


class Secret(msgspec.Struct, frozen=True, gc=False):
    """A Secret; values are base64."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None

    def text(self) -> dict[str, str]:
        """Return the values decoded; bytes that are not UTF-8 are replaced, as no environment can hold them."""
        return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in (self.data or {}).items()}


SECRETS = Resource(version="v1", plural="secrets", kind="Secret", namespaced=True, type=Secret)
