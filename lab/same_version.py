"""What gripfast-lab depends on: it uses inner parts of gripfast, so the two must have the same version."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class SameVersion(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        metadata["dependencies"] = [f"gripfast[redis]=={metadata['version']}", "lupa>=2.2"]
