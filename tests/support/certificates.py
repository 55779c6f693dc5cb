"""A certificate for servers on loopback."""

import subprocess
from pathlib import Path


def certificate(folder: Path) -> Path:
    """A self-signed certificate for loopback, its key beside it: `server.crt` and `server.key`."""
    made = folder / "server.crt"
    command = "openssl req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -subj /CN=localhost"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    usage = "keyUsage=critical,digitalSignature,keyCertSign"
    files = ["-keyout", str(made.with_suffix(".key")), "-out", str(made)]
    line = [*command.split(), "-addext", names, "-addext", usage, *files]
    ran = subprocess.run(line, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return made
