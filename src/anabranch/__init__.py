"""Declarative streaming-lakehouse engine on PySpark: read once, parse once, commit together or not at all."""

from anabranch.streams import Output, each_batch, fan_out

__all__ = ["Output", "each_batch", "fan_out"]
__version__ = "0.1.0.dev0"
