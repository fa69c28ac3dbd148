"""Declarative streaming-lakehouse engine on PySpark: read once, parse once, commit together or not at all."""

__version__ = "0.1.0.dev0"
