"""Files of Parquet for the native pass: which sources workers can read themselves, and how they do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from anabranch.engine.catalyst import METADATA_COLUMN, Catalyst, source_options
from anabranch.engine.catalyst_nodes import Node, identity, items, kind, type_of
from anabranch.engine.native_documents import OF_FILES, check_folders
from anabranch.engine.native_files import Split, about, asks_for_part
from anabranch.engine.native_rows import CannotRead
from anabranch.engine.native_sql import raw_name
from anabranch.native.parquet import OddFile, Wanted, known, read_part
from anabranch.native.program import NativeProgram
from anabranch.native.tree import NotKnown

_PLAIN = (
    *(BooleanType, ByteType, ShortType, IntegerType, LongType, FloatType, DoubleType, DecimalType),
    *(BinaryType, DateType, TimestampType, TimestampNTZType),
)

#: Under which files are read as `native.parquet` reads them.
_SETTINGS = {
    "spark.sql.caseSensitive": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.enableVectorizedReader": "true",
    "spark.sql.parquet.enableNestedColumnVectorizedReader": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
}


@dataclass(frozen=True, slots=True)
class ParquetFeed:
    """How the columns of files become raw records: their names among these; the name and type for `_metadata`."""

    columns: tuple[tuple[str, Wanted], ...]
    metadata: tuple[str, pa.DataType] | None = None

    def batches(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """The rows of some splits: of the row groups that begin in them."""
        names = [raw for raw, _ in self.columns]
        for split in splits:
            for batch in self._read(split):
                if self.metadata is None:
                    yield pa.record_batch(batch.columns, names=names)
                else:
                    told = pa.repeat(about(split, self.metadata[1]), batch.num_rows)
                    yield pa.record_batch([*batch.columns, told], names=[*names, self.metadata[0]])

    def _read(self, split: Split) -> Iterator[pa.RecordBatch]:
        if "=" in split.path.rpartition("/")[0]:
            raise CannotRead(split.path)  # a folder k=v is a column, for Spark
        wanted = [column for _, column in self.columns]
        try:
            yield from read_part(split.path, wanted, split.start, split.length, split.size)
        except (OSError, pa.ArrowException, UnicodeDecodeError, OddFile) as error:
            raise CannotRead(split.path) from error


def is_parquet(base: Node) -> bool:
    """Whether a source is files of Parquet."""
    return kind(base) == "StreamingRelation" and source_options(base)[0].lower() == "parquet"


def parquet_feed(catalyst: Catalyst, base: Node, needed: Sequence[Node], program: NativeProgram) -> ParquetFeed:
    """How workers read what flows need of a source; raises if that is not certain to be what Spark reads."""
    _check_source(catalyst, base)
    columns, metadata = [], None
    for attribute in needed:
        raw = raw_name(identity(attribute))
        type_in_arrow = to_arrow_schema(StructType([StructField("of", type_of(attribute))])).field(0).type
        if attribute.name() == METADATA_COLUMN:
            if asks_for_part(program, raw):
                raise NotKnown("asks where in a file a row is")
            metadata = raw, type_in_arrow
            continue
        said = json.loads(attribute.metadata().json())
        field = StructField(attribute.name(), type_of(attribute), attribute.nullable(), said)
        _check_type(field)
        if not known(type_in_arrow):
            raise NotKnown(f"reads {field.name}, which is {field.dataType.simpleString()}")
        columns.append((raw, Wanted(field.name, type_in_arrow)))
    if not columns:
        raise NotKnown("reads no column of its files")
    return ParquetFeed(tuple(columns), metadata)


def _check_source(catalyst: Catalyst, base: Node) -> None:
    _, options = source_options(base)
    if odd := sorted(options.keys() - OF_FILES):
        raise NotKnown(f"reads files of Parquet with the option {odd[0]}")
    for key, usual in _SETTINGS.items():
        if (found := catalyst.setting(key)).lower() != usual.lower():
            raise NotKnown(f"reads files of Parquet with {key} {found}")
    source = base.dataSource()
    declared = source.userSpecifiedSchema()
    if not declared.isDefined():
        raise NotKnown("reads files of Parquet without a declared schema")
    check_folders(base, options)
    names = set(declared.get().fieldNames())
    if METADATA_COLUMN in names:
        raise NotKnown(f"reads a column of its own that is called {METADATA_COLUMN}")
    if {attribute.name() for attribute in items(base.output())} - {METADATA_COLUMN} != names:
        raise NotKnown("reads columns that are in the names of folders")


def _check_type(field: StructField) -> None:
    """Refuse types, and what is said of fields, that change how they are read."""
    _check_metadata(field.name, field.metadata)
    if not field.nullable:
        raise NotKnown(f"reads {field.name}, which is declared never to be null")
    each = field.dataType
    if isinstance(each, ArrayType):
        _check_type(StructField(field.name, each.elementType, each.containsNull))
    elif type(each) is StructType:
        if len({name.casefold() for name in each.names}) < len(each.names):
            raise NotKnown(f"reads {field.name}, which has two fields of one name")
        for inner in each.fields:
            _check_type(inner)
    elif not isinstance(each, _PLAIN) and not _is_text(each):
        raise NotKnown(f"reads {field.name}, which is {each.simpleString()}")


def _is_text(each: DataType) -> bool:
    return type(each) is StringType and each == StringType()


def _check_metadata(name: str, said: Iterable[str]) -> None:
    if set(said) - {"comment"}:
        raise NotKnown(f"reads {name}, which has more than a type")
