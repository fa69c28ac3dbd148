"""The process that Spark forks its Python workers from: it has imported what they need.

Spark's own has not, so each worker would import Arrow, DuckDB and the engine for itself. And it takes pyspark from a
zip file, which Python compiles anew in every process; beside it there is the same, compiled.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path


def without_zips(path: list[str]) -> list[str]:
    """The entries of a path, without the zip files of a pyspark that can be imported from the path as well."""
    plain = [entry for entry in path if not entry.endswith(".zip")]
    found = PathFinder.find_spec("pyspark", plain)
    if found is None or found.origin is None or PathFinder.find_spec("py4j", plain) is None:
        return path
    packed = Path(found.origin).parent / "python" / "lib"
    return [entry for entry in path if Path(entry).parent != packed]


def main() -> None:
    """Import, and fork workers until Spark has done with them."""
    sys.path[:] = without_zips(sys.path)
    import pandas  # noqa: F401  Spark imports it for every function over Arrow
    from pyspark.daemon import manager

    import anabranch.connectors.parquet_files
    import anabranch.engine.native_files
    import anabranch.engine.stage
    import anabranch.native.run  # noqa: F401

    manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
