"""Declarative streaming-lakehouse engine on PySpark: read once, parse once, commit together or not at all."""

from anabranch.controller import Controller
from anabranch.core.secrets import secret
from anabranch.streams import Output, each_batch, fan_out

__all__ = ["Controller", "Output", "each_batch", "fan_out", "secret"]
__version__ = "0.1.0.dev0"
