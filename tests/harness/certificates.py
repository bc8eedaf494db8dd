"""Certificates of a test authority, made by openssl; they pass the strict checks of Python 3.13 (RFC 5280)."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

from harness.binaries import require
from sidecar.net.credential_files import KeyPair, first_pem

if TYPE_CHECKING:
    from pathlib import Path


class Authority:
    """A certificate authority. ``ca`` is its own certificate. The keys are on elliptic curves, because RSA is slow."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self.name = name
        self.ca, self._key = directory / f"{name}.crt", directory / f"{name}.key"
        usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        certificate = ("-subj", f"/CN={name}", *usage, "-days", "2", "-out", str(self.ca))
        self._openssl("req", "-x509", *_new_key(self._key), *certificate)

    def sign(
        self, subject: str, san: str = "IP:127.0.0.1", *, days: int = 2, extensions: str = ""
    ) -> tuple[Path, Path]:
        """A new certificate and its key."""
        cert, key = (self._directory / f"{self.name}-{subject}.{kind}" for kind in ("crt", "key"))
        request, config = cert.with_suffix(".csr"), cert.with_suffix(".ext")
        config.write_text(f"subjectAltName={san}\n{extensions}")
        self._openssl("req", *_new_key(key), "-subj", f"/CN={subject}", "-out", str(request))
        signer = ("-CA", str(self.ca), "-CAkey", str(self._key), "-CAcreateserial", "-days", str(days))
        self._openssl("x509", "-req", "-in", str(request), *signer, "-extfile", str(config), "-out", str(cert))
        return cert, key

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(
            [require("openssl"), *words], capture_output=True, text=True, timeout=90, check=False, cwd=self._directory
        )
        assert done.returncode == 0, done.stderr


def _new_key(path: Path) -> tuple[str, ...]:
    return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc", "-keyout", str(path))


def certificate(path: str) -> bytes:
    """The first certificate of this file in DER."""
    return ssl.PEM_cert_to_DER_cert(first_pem(path))


def client_context(pair: KeyPair | None = None) -> ssl.SSLContext:
    """A context for clients that accept any certificate, if the server has its key; ``pair``: what they show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        context.load_cert_chain(*pair)
    return context
