"""The version of this package, for those who tell others of a pipeline."""

from __future__ import annotations

import sys


def version() -> str:
    """As the package says it. It is there whenever a part of it is; importing it by name would import all of it."""
    return str(sys.modules["anabranch"].__version__)
