"""Every expression that is compiled gives what Spark gives, bit by bit, of every value of which it has no doubt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from expression_cases import FRAMES, different
from random_expressions import differences

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", FRAMES)
def test_gives_what_spark_gives(spark: Any, name: str) -> None:
    frame = FRAMES[name]
    assert different(spark, frame.table, frame.expressions) == []


def test_random_expressions_give_what_spark_gives(spark: Any) -> None:
    assert differences(spark, seed=1, seconds=8) == []
