"""Observers that make metrics of events: `otel.py` for OpenTelemetry, `prometheus.py` for Prometheus.

`figures.py` decides what is counted, under which names. So both tell the same, and one dashboard serves both. Each
needs the library that it writes to, and loads nothing else: import the module that you use.
"""
