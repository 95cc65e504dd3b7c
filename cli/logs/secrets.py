"""No line has a secret. Nobody logs secrets on purpose; they come in the words of errors and of others.

What looks like one is replaced: tokens, what follows ``Authorization``, PEM blocks and their Base64, passwords in URLs,
and values of JSON keys that are named like secrets. It is the last of several guards: lines name objects and never
hold them, and libraries, which log what they send, may not say less than warnings (cli/logs/levels.py).
"""

from __future__ import annotations

import re
from typing import Final

REMOVED: Final = "(removed)"

#: Every match of the patterns has one of these: most texts have none, and are read once.
_HINT: Final = re.compile(
    r"eyJ|-----BEGIN|LS0tLS1|@|(?i:authorization|bearer|token|password|secret|-key-data|tls\.key)"
)
_PATTERNS: Final = (
    # PEM of any kind, cut off or not; certificates too.
    (re.compile(r"-----BEGIN [A-Z0-9 ]{1,40}-----.*?(?:-----END [A-Z0-9 ]{1,40}-----|\Z)", re.DOTALL), REMOVED),
    # The same in Base64, as in Secrets and kubeconfigs.
    (re.compile(r"LS0tLS1CRUdJTi[A-Za-z0-9+/=\\n]*"), REMOVED),
    # JSON Web Tokens. A longer header is none, and would be looked for from each of its places to its end.
    (re.compile(r"eyJ[A-Za-z0-9_-]{8,1024}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"), REMOVED),
    (
        re.compile(r"(?i)(authorization['\"\\]{0,4}\s*[:=,]\s*['\"\\]{0,4})(?:(?:bearer|basic)\s+)?[^\s'\",\\]+"),
        rf"\1{REMOVED}",
    ),
    (re.compile(r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/-]{16,}=*"), rf"\1{REMOVED}"),
    (re.compile(r"(://)[^\s/@:]*:[^\s/@]+@"), rf"\1{REMOVED}@"),
    (
        re.compile(
            r"(?i)(['\"\\]{1,4}(?:[a-z0-9_-]{0,40}(?:token|password|secret)|client-key-data|tls\.key)['\"\\]{1,4}\s*:\s*"
            r"['\"\\]{1,4})[^'\"\\\s]+"
        ),
        rf"\1{REMOVED}",
    ),
)


def without_secrets(text: str) -> str:
    """Return the text without what looks like a secret."""
    if _HINT.search(text) is None:
        return text
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text
