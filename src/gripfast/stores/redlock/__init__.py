"""Redlock on several independent Redis servers: `core.redlock` decides, the nodes are asked here."""
