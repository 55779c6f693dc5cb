"""Certificates for servers on loopback."""

import subprocess
from pathlib import Path

LOOPBACK = "DNS:localhost,IP:127.0.0.1"


def certificate(folder: Path, names: str = LOOPBACK) -> Path:
    """A self-signed certificate for these names, its key beside it: `server.crt` and `server.key`."""
    made = folder / "server.crt"
    command = "openssl req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=localhost"
    usage = "keyUsage=critical,digitalSignature,keyCertSign"
    files = ["-keyout", str(made.with_suffix(".key")), "-out", str(made)]
    line = [*command.split(), "-addext", f"subjectAltName={names}", "-addext", usage, *files]
    ran = subprocess.run(line, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return made
