"""What a project file may say about sources, entities and zones. Unknown keys are errors everywhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from anabranch.load.durations import parse_duration
from anabranch.load.yaml_types import SettingText, SomeSeconds, Text
from anabranch.load.zones_schema import as_ddl_text, fields_as_ddl
from anabranch.load.zones_transformers import TransformerCall, read_call

#: Words for a trigger that leaves the pace to the command.
AVAILABLE_NOW = "available now"


def _said(reason: str, hint: str) -> PydanticCustomError:
    return PydanticCustomError("value", "{reason}", {"reason": reason, "hint": hint})


def _one_or_more(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _schema(value: Any) -> Any:
    try:
        return as_ddl_text(value)
    except ValueError as error:
        raise _said(str(error), "write DDL such as `id BIGINT, name STRING`, Spark's JSON, or use `fields`") from error


def _fields(value: Any) -> Any:
    try:
        return fields_as_ddl(value)
    except ValueError as error:
        raise _said(str(error), "write `name: type`, or `name: {type: ..., nullable: false}`") from error


def _trigger(value: Any) -> float | None:
    if isinstance(value, str) and value.strip().lower() == AVAILABLE_NOW:
        return None
    try:
        return parse_duration(str(value))
    except ValueError as error:
        raise _said(str(error), 'a duration such as "10 minutes", or "available now"') from error


def _call(value: Any) -> Any:
    if isinstance(value, TransformerCall):
        return value
    try:
        return read_call(value)
    except ValueError as error:
        raise _said(str(error), "write its name, or `name: {argument: value}` with one name") from error


Words = Annotated[
    list[Text],
    BeforeValidator(_one_or_more),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Schema = Annotated[
    Text,
    BeforeValidator(_schema),
    WithJsonSchema(
        {
            "description": "DDL text, or Spark's JSON of a struct",
            "anyOf": [{"type": "string"}, {"type": "object", "required": ["type", "fields"]}],
        }
    ),
]
Trigger = Annotated[
    float | None,
    BeforeValidator(_trigger),
    WithJsonSchema({"type": "string", "description": 'a duration such as "10 minutes", or "available now"'}),
]
Transformer = Annotated[
    TransformerCall,
    BeforeValidator(_call),
    PlainSerializer(str),
    WithJsonSchema(
        {
            "description": "a transformer by its name, or one name with arguments",
            "anyOf": [{"type": "string"}, {"type": "object", "minProperties": 1, "maxProperties": 1}],
        }
    ),
]
Envelope = Annotated[
    str | None,
    BeforeValidator(lambda value: {True: "data", False: None}.get(value, value) if isinstance(value, bool) else value),
    WithJsonSchema({"type": ["boolean", "string"]}),
]
Fields = Annotated[
    Text,
    BeforeValidator(_fields),
    WithJsonSchema(
        {
            "description": "columns by name, each with its type",
            "type": "object",
            "additionalProperties": {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "required": ["type"],
                        "additionalProperties": False,
                        "properties": {
                            "type": {"type": "string"},
                            "nullable": {"type": "boolean"},
                            "description": {"type": "string"},
                        },
                    },
                ]
            },
        }
    ),
]
Format = Literal["json", "csv", "parquet", "orc", "avro", "text", "kafka"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


class RuleSpec(_Strict):
    """A rule for rows: `rule` is SQL that is true for a good one, `unique` names columns that no two share."""

    rule: Text | None = None
    unique: Words | None = None
    action: Literal["warn", "drop", "quarantine", "fail"] = "warn"


class _Reading(_Strict):
    """How records are read. `{entity}` in a path or topic stands for the entity's name."""

    format: Format | None = None
    path: Text | None = Field(default=None, description="folder of files; starts from the project's folder")
    topic: Text | None = None
    bootstrap: Text | None = Field(default=None, description="address of the Kafka brokers")
    starting: Text | None = Field(default=None, description="where a topic is read from at first: earliest or latest")
    envelope: Envelope = Field(
        default=None,
        description='files are documents {"_meta": {...}, "data": [...]}; text names another array than data',
    )
    reader: dict[str, SettingText] | None = Field(default=None, description="options of Spark's reader")
    max_files: int | None = Field(default=None, ge=1, description="files taken in one epoch at most")
    max_per_trigger: int | None = Field(default=None, ge=1, description="messages taken in one epoch at most")
    clean: Literal["keep", "archive", "delete"] | None = Field(
        default=None, description="what becomes of a source file once its epoch is published"
    )
    archive: Text | None = Field(default=None, description="folder that `clean: archive` moves files to")


class SourceSpec(_Reading):
    """Where records come from, for any number of entities."""

    description: str | None = None


class ZoneSpec(_Strict):
    """One step on the way from source to consumers; an entity may say otherwise under its own `zones`."""

    enabled: bool | None = None
    name: Text | None = Field(default=None, description="of the table; {zone} and {entity} stand for their names")
    mode: Literal["append", "upsert"] | None = None
    transformers: list[Transformer] | None = None
    keys: Words | None = None
    sequence_by: Text | None = None
    deletes: Text | None = Field(default=None, description="SQL that is true for a row that deletes its key")
    history: bool | None = Field(default=None, description="keep every version of a row, with the time it was valid")
    partition_by: Words | None = None
    format: Text | None = None
    path: Text | None = None
    writer: dict[str, SettingText] | None = Field(default=None, description="options of the table's format")
    properties: dict[str, SettingText] | None = None
    observe: bool | Words | None = Field(default=None, description="columns to profile as they are written; true: all")
    expectations: dict[str, RuleSpec] | None = None
    cadence: SomeSeconds | None = Field(default=None, description="run this zone, and those after it, on their own")
    description: str | None = None


class _OfEntity(_Reading):
    source: Text | None = None
    trigger: Trigger = None
    sequence_by: Text | None = None
    partition_by: Words | None = None
    writer: dict[str, SettingText] | None = None
    owner: Text | None = None
    tags: dict[str, SettingText] | None = None


class DefaultsSpec(_OfEntity):
    """What holds for every entity that does not say otherwise."""


class EntitySpec(_OfEntity):
    """One kind of record, from its source through the zones."""

    record_schema: Schema | None = Field(default=None, alias="schema")
    fields: Fields | None = None
    explode: Text | None = Field(default=None, description="an array of which each element becomes a row")
    enabled: bool = True
    keys: Words | None = None
    deletes: Text | None = None
    expectations: dict[str, RuleSpec] | None = Field(default=None, description="checked in the last zone")
    zones: dict[str, ZoneSpec] = {}
    description: str | None = None


class EnvironmentSpec(_Strict):
    """An environment: the values that are other there."""

    values: dict[str, Any] = {}


class IncludedSpec(_Strict):
    """The keys of an included file."""

    values: dict[str, Any] = {}
    defaults: DefaultsSpec = Field(default_factory=DefaultsSpec)
    sources: dict[str, SourceSpec] = {}
    zones: dict[str, ZoneSpec] = {}
    entities: dict[str, EntitySpec] = {}
