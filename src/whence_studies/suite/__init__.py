"""Protocols, the metrics that they name, and their runs."""
