"""Workers come from a process that has imported what they need."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest

from anabranch.engine.worker_daemon import without_zips

LIB = Path(pyspark.__file__).parent / "python" / "lib"


def test_zips_of_the_pyspark_that_is_there_are_left_out() -> None:
    zips = [str(path) for path in LIB.glob("*.zip")]
    assert len(zips) == 2
    assert without_zips(["", *zips, "/jobs/mine.zip", *sys.path]) == ["", "/jobs/mine.zip", *sys.path]


def test_zips_stay_where_there_is_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    assert without_zips([str(other), *sys.path]) == [str(other), *sys.path], "another Spark than the one that is here"
    zips = [str(LIB / "pyspark.zip"), str(tmp_path)]
    assert without_zips(zips) == zips


@pytest.mark.spark
def test_workers_of_a_session_have_imported_it(spark: Any) -> None:
    def modules(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import sys

        import pyspark

        for _ in batches:
            parent = open(f"/proc/{os.getppid()}/cmdline").read().split("\0")  # noqa: SIM115
            known = [name for name in ("duckdb", "anabranch.native.run") if name in sys.modules]
            yield pa.record_batch({"said": [" ".join([parent[2], pyspark.__file__, *known])]})

    [row] = spark.range(0, 1, 1, 1).mapInArrow(modules, "said string").collect()
    assert row.said == f"anabranch.engine.worker_daemon {pyspark.__file__} duckdb anabranch.native.run"
