"""The names that Databricks' pipelines have beside Spark's: on `pyspark.pipelines`, and in a module called `dlt`.

Spark's own decorators return nothing, so that one above them gets nothing to work on; and they do not know the
arguments that Databricks adds. While files are loaded, and while their flows are called, `pyspark.pipelines`
has our functions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from anabranch import pipelines
from anabranch.load.at_rest import reads_at_rest
from anabranch.load.declare import without_live

#: Names of earlier versions, with what each is called now.
EARLIER = {
    "apply_changes": "create_auto_cdc_flow",
    "apply_changes_from_snapshot": "create_auto_cdc_from_snapshot_flow",
    "create_streaming_live_table": "create_streaming_table",
    "create_target_table": "create_streaming_table",
    "view": "temporary_view",
}
_NAME_OF_DLT = "dlt"
_NOTHING = object()
_PATCHED = ("pyspark.pipelines", "pyspark.pipelines.api")


def read(name: str, **_: Any) -> Any:
    """All rows of a dataset of the pipeline, as `dlt.read` gives them."""
    return _session().read.table(without_live(name))


def read_stream(name: str, **_: Any) -> Any:
    """The new rows of a dataset of the pipeline, as `dlt.read_stream` gives them."""
    return _session().readStream.table(without_live(name))


def lakeflow_module(name: str) -> ModuleType:
    """A module with every name, the current and the earlier ones."""
    module = ModuleType(name, pipelines.__doc__)
    vars(module).update(_everything())
    if name == _NAME_OF_DLT:
        vars(module).update({"table": table, "create_table": table})
    return module


def table(query_function: Any = None, **arguments: Any) -> Any:
    """`dlt.table`: a materialized view if the function reads tables at rest, as on Databricks; else a streaming table.

    What it reads is taken from its code; where that is not plain, it is a streaming table.
    """

    def declare(function: Any) -> Any:
        made = pipelines.materialized_view if reads_at_rest(function) else pipelines.table
        return made(**arguments)(function) if arguments else made(function)

    return declare if query_function is None else declare(query_function)


@contextmanager
def lakeflow_names(*, own_dlt: bool) -> Iterator[None]:
    """Inside, `import dlt` works, unless the project has a module of its own by that name, and Spark's has our names.

    An installed package called `dlt` is hidden meanwhile: it is either Databricks' own, which declares nothing outside
    of it, or a tool for other work.
    """
    ours = _everything()
    patched = [module for name in _PATCHED if (module := sys.modules.get(name)) is not None]
    before = [{name: vars(module).get(name, _NOTHING) for name in ours} for module in patched]
    hidden = None if own_dlt else {n: sys.modules.pop(n) for n in [*sys.modules] if n.partition(".")[0] == _NAME_OF_DLT}
    for module in patched:
        vars(module).update(ours)
    if hidden is not None:
        sys.modules[_NAME_OF_DLT] = lakeflow_module(_NAME_OF_DLT)
    try:
        yield
    finally:
        for module, names in zip(patched, before, strict=True):
            for name, value in names.items():
                if value is _NOTHING:
                    vars(module).pop(name, None)
                else:
                    vars(module)[name] = value
        if hidden is not None:
            sys.modules.pop(_NAME_OF_DLT, None)
            sys.modules.update(hidden)


def _everything() -> dict[str, Any]:
    names = {name: getattr(pipelines, name) for name in pipelines.__all__}
    names |= {earlier: names[now] for earlier, now in EARLIER.items()}
    names |= {"read": read, "read_stream": read_stream}
    return {**names, "__all__": sorted(names)}


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.active()
