"""As `nursery.py`, for clients of etcd."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import gripfast.stores.etcd.factory  # noqa: F401 - here, so that no child has to
from chaos.nursery import main

main()
