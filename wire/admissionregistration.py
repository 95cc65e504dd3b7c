"""Webhook configurations, in part: which CAs the API server trusts at each webhook (admissionregistration.k8s.io/v1).

Mutating and validating ones are of one shape as far as that goes.
"""

from __future__ import annotations

from wire.core import ObjectMeta, WireStruct


class ClientConfig(WireStruct, frozen=True, gc=False):
    """Where a webhook is, and ``caBundle``: PEM in base64. Without it the API server trusts its machine's CAs."""

    ca_bundle: str | None = None


class Webhook(WireStruct, frozen=True, gc=False):
    """One webhook of a configuration."""

    name: str = ""
    client_config: ClientConfig = ClientConfig()


class WebhookConfiguration(WireStruct, frozen=True, gc=False):
    """The server counts changes of ``webhooks`` in ``metadata.generation``."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: list[Webhook] | None = None
