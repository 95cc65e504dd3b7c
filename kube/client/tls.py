"""TLS to an API server: whom to trust, and the certificate that says who we are."""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from kube.client.config import Credentials


def tls_context(credentials: Credentials) -> ssl.SSLContext:
    """Return the TLS settings for a cluster: its CA (the system's roots if none is named) and our certificate."""
    context = ssl.create_default_context(
        cafile=credentials.ca_file or None, cadata=credentials.ca_data.decode("ascii", "ignore") or None
    )
    # Python 3.13 turned this on; clusters' CAs are made for Go, which doesn't ask for the extensions that it wants.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if credentials.has_certificate:
        _load_certificate(context, credentials)
    if not credentials.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Load our certificate and its key. OpenSSL takes files only, so what is none is one for a moment, for us alone."""
    with tempfile.TemporaryDirectory(prefix="moorage-") as folder:
        files = []
        for name, data, file in (
            ("cert", credentials.client_cert_data, credentials.client_cert_file),
            ("key", credentials.client_key_data, credentials.client_key_file),
        ):
            if data:
                file = str(Path(folder) / name)  # noqa: PLW2901 - the same, as a file
                Path(file).touch(mode=0o600)
                Path(file).write_bytes(data)
            files.append(file or None)
        context.load_cert_chain(files[0] or "", files[1])
