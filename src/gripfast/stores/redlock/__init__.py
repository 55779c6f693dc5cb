"""Redlock on several independent Redis servers: `core.redlock` decides, and the requests to the nodes are sent from
here."""
