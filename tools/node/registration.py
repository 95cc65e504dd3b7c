"""How the device plug-in knows one kubelet from the next, and says with which one it is registered.

Apart from the plug-in itself, so that who only waits for it does not import grpcio.
"""

from __future__ import annotations

from nodeagent.kubeletapi.client import identity

__all__ = ["identity", "registered"]


def registered(kubelet: tuple[int, int]) -> str:
    """What the plug-in says on its output when this kubelet has taken it."""
    return f"is registered with {kubelet}"
