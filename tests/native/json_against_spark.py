"""The parser beside Spark's `from_json`, for the same documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.parse import JsonParser, JsonShape, Parsed


@dataclass(frozen=True)
class Case:
    """Documents to be read with a schema."""

    schema: dict[str, Any]
    documents: Sequence[bytes | None]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> JsonShape:
        return JsonShape(json.dumps(self.schema), self.options)


@dataclass(frozen=True)
class Difference:
    """A document that was not doubted, and should have been."""

    case: Case
    document: bytes | None
    native: str
    spark: str


def compared(spark: Any, cases: Sequence[Case], few: int = 10) -> tuple[list[Difference], list[float]]:
    """What differs, and the share of each case that was read natively. One job of Spark for all of them.

    Documents are read all together, and `few` at a time: then fewer are doubted for the sake of others.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    parsed = [_parsed(case, few) for case in cases]
    longest = max(len(case.documents) for case in cases)
    columns = {}
    for number, (case, here) in enumerate(zip(cases, parsed, strict=True)):
        documents = list(case.documents)
        if case.options.get("mode") == "FAILFAST" and here.doubt is not None:
            documents = [None if odd else text for text, odd in zip(documents, here.doubt.to_pylist(), strict=True)]
        columns[f"v{number}"] = pa.array([*documents, *[None] * (longest - len(documents))], pa.binary())
    frame = spark.createDataFrame(pa.table({"row": pa.array(range(longest)), **columns}))
    readers = [
        f.from_json(f.col(f"v{n}").cast("string"), StructType.fromJson(case.schema), dict(case.options)).alias(f"r{n}")
        for n, case in enumerate(cases)
    ]
    answer = frame.select("row", *readers).toArrow().sort_by("row")
    differences = []
    shares = []
    for number, (case, here) in enumerate(zip(cases, parsed, strict=True)):
        there = answer[f"r{number}"].combine_chunks()[: len(case.documents)]
        assert there.type == here.records.type, (there.type, here.records.type)
        here.records.validate(full=True)
        sure = pa.array([True] * len(there)) if here.doubt is None else pc.invert(here.doubt)
        shares.append(sure.true_count / max(1, len(sure)))
        # Compared as Python shows them: -0.0 is not 0.0.
        pairs = zip(here.records.filter(sure), there.filter(sure), strict=True)
        texts = [text for text, certain in zip(case.documents, sure.to_pylist(), strict=True) if certain]
        for text, (native, sparks) in zip(texts, pairs, strict=True):
            shown = repr(plain(native)), repr(plain(sparks))
            if shown[0] != shown[1]:
                differences.append(Difference(case, text, *shown))
    return differences, shares


def _parsed(case: Case, size: int) -> Parsed:
    parser = JsonParser(case.shape)
    documents = pa.array(case.documents, pa.binary())
    together = parser.parse(documents)
    chunks = [documents[start : start + size] for start in range(0, len(documents), size)]
    few = parser.parse(pa.chunked_array(chunks, documents.type))
    assert len(few.records) == len(together.records) == len(documents)
    if together.doubt is None or few.doubt is None:
        return together if together.doubt is None else few
    pairs = zip(together.doubt.to_pylist(), few.doubt.to_pylist(), together.records, few.records, strict=True)
    for one, other, here, there in pairs:
        assert one or other or repr(plain(here)) == repr(plain(there))
    records = pc.if_else(few.doubt, together.records, few.records)
    return Parsed(records, pc.and_(together.doubt, few.doubt))


def plain(record: pa.Scalar) -> Any:
    """Without Python's own times, which end with the year 9999."""
    if not record.is_valid:
        return None
    if isinstance(record, pa.StructScalar):
        return {name: plain(record[name]) for name in record}
    if isinstance(record, pa.ListScalar):
        return [plain(element) for element in record]
    if isinstance(record, pa.TimestampScalar | pa.Date32Scalar):
        return record.value
    return record.as_py()
