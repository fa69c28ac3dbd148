"""Entities and zones in YAML: what they declare, and every problem word for word with its place."""

from __future__ import annotations

import json
import shutil
import textwrap
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from anabranch.cli.main import main
from anabranch.cli.schema import json_schema
from anabranch.core.declarations import Action, Dataset, Kind, Pipeline
from anabranch.core.environment import environment
from anabranch.errors import ProjectError
from anabranch.load.project import examine_project
from anabranch.load.python_files import examine_pipeline

MAIN = """
name: shop
include: [entities/*.yml]
values:
  landing: landing
environments:
  prod:
    values: {landing: /data/in}
sources:
  files:
    format: json
    path: ${landing}/{entity}
zones:
  bronze: {transformers: [audit]}
  silver: {mode: upsert, transformers: [snake_case, flatten]}
"""
ORDER = """
entities:
  order:
    source: files
    schema: id BIGINT, at TIMESTAMP
    keys: id
    sequence_by: at
"""
TEMPLATE = Path(str(files("anabranch.cli").joinpath("templates", "medallion")))


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(named: dict[str, str]) -> Path:
        for name, text in named.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        return tmp_path

    return write


def found(root: Path) -> tuple[Pipeline, list[ProjectError]]:
    examined = examine_project(root)
    assert examined.project is not None, examined.problems
    loaded = examine_pipeline(examined.project, with_spark=False)
    return loaded.pipeline, [*examined.problems, *loaded.problems]


def words(root: Path) -> list[tuple[str, str, str, str | None]]:
    _, problems = found(root)
    return [(p.code, str(p.where).removeprefix(f"{root}/"), p.message, p.hint) for p in problems]


def datasets(pipeline: Pipeline) -> dict[str, Dataset]:
    return {d.name: d for d in pipeline.datasets}


def test_an_entity_is_a_view_of_its_source_and_a_table_for_each_zone(write: Any) -> None:
    pipeline, problems = found(write({"anabranch.yml": MAIN, "entities/order.yml": ORDER}))
    assert problems == []
    assert [(d.name, d.kind) for d in pipeline.datasets] == [
        ("order_source", Kind.TEMPORARY_VIEW),
        ("bronze.order", Kind.STREAMING_TABLE),
        ("silver.order_rows", Kind.TEMPORARY_VIEW),
        ("silver.order", Kind.STREAMING_TABLE),
    ]
    assert [(f.target, f.inputs) for f in pipeline.flows] == [
        ("order_source", ()),
        ("bronze.order", ("order_source",)),
        ("silver.order_rows", ("bronze.order",)),
        ("silver.order", ("silver.order_rows",)),
    ]
    changes = pipeline.flows[-1].changes
    assert changes is not None
    assert (changes.keys, changes.sequence_by) == (("id",), "at")
    readable = datasets(pipeline)["order_source"].expectations[0]
    assert (readable.action, datasets(pipeline)["order_source"].quarantine) == (Action.QUARANTINE, "order_dead_letters")


def test_everything_that_can_be_said(write: Any) -> None:
    order = """
    defaults: {owner: sales, trigger: 5 minutes, tags: {domain: shop, level: 1}}
    entities:
      order:
        format: csv
        path: ${landing}/orders
        fields: {id: bigint, price: {type: string, nullable: false, description: In euros}}
        reader: {header: true}
        clean: archive
        archive: done
        keys: id
        sequence_by: id
        partition_by: id
        tags: {level: 2}
        description: Orders of the shop
        expectations:
          some_id: {rule: id IS NOT NULL, action: drop}
          one_id: {unique: id, action: fail}
        zones:
          bronze: {name: "raw_{entity}", observe: true}
          silver:
            cadence: 10 minutes
            observe: [id, price]
            transformers: [{cast: {price: "decimal(10,2)"}}, {validate: {dear: price > 1}}]
    """
    pipeline, problems = found(write({"anabranch.yml": MAIN, "entities/order.yml": order}))
    assert problems == []
    tables = datasets(pipeline)
    assert list(tables) == ["order_source", "raw_order", "silver.order_rows", "silver.order"]
    silver = tables["silver.order"]
    assert (silver.owner, silver.tags, silver.comment) == (
        "sales",
        {"domain": "shop", "level": "2"},
        "Orders of the shop",
    )
    assert (silver.trigger, silver.detached, tables["raw_order"].trigger) == (600.0, True, 300.0)
    assert silver.partition_by == ("id",)
    assert (tables["raw_order"].observe, silver.observe) == ((), ("id", "price"))
    assert tables["silver.order_rows"].observe is None
    assert [(r.name, r.action.value) for r in tables["silver.order_rows"].expectations] == [
        ("cast_price", "quarantine"),
        ("dear", "quarantine"),
        ("some_id", "drop"),
    ]
    assert [r.columns for r in silver.unique] == [("id",)]
    flows = {f.target: f for f in pipeline.flows}
    assert flows["silver.order_rows"].inputs == ("raw_order",)


def test_a_zone_that_is_not_enabled_is_left_out(write: Any) -> None:
    order = ORDER + "    zones:\n      bronze: {enabled: false}\n"
    pipeline, problems = found(write({"anabranch.yml": MAIN, "entities/order.yml": order}))
    assert problems == []
    assert list(datasets(pipeline)) == ["order_source", "silver.order_rows", "silver.order"]


def test_keys_that_do_not_exist_are_errors_everywhere(write: Any) -> None:
    order = ORDER.replace("keys: id", "kyes: id") + "    zones:\n      silver: {mod: upsert}\n"
    root = write({"anabranch.yml": MAIN.replace("path: $", "pth: $"), "entities/order.yml": order})
    told = words(root)
    assert told[:3] == [
        ("PROJECT_UNKNOWN_FIELD", "anabranch.yml:11:5", "sources.files.pth: unknown field", 'did you mean "path"?'),
        ("PROJECT_UNKNOWN_FIELD", "entities/order.yml:8:16", "entities.order.zones.silver.mod: unknown field",
         'did you mean "mode"?'),
        ("PROJECT_UNKNOWN_FIELD", "entities/order.yml:5:5", "entities.order.kyes: unknown field",
         'did you mean "keys"?'),
    ]  # fmt: skip


def test_a_transformer_that_is_not_there(write: Any) -> None:
    order = (
        ORDER + "    zones:\n      silver:\n        transformers:\n          - flaten\n          - trim: {colums: id}\n"
    )
    assert words(write({"anabranch.yml": MAIN, "entities/order.yml": order})) == [
        ("TRANSFORMER_UNKNOWN", "entities/order.yml:10:13",
         'entity "order", zone "silver": there is no transformer "flaten"', 'did you mean "flatten"?'),
        ("TRANSFORMER_ARGUMENT", "entities/order.yml:11:28",
         'entity "order", zone "silver": trim: unknown argument "colums"', 'did you mean "columns"?'),
    ]  # fmt: skip


def test_a_source_and_a_zone_that_are_not_there(write: Any) -> None:
    order = ORDER.replace("source: files", "source: fils") + "    zones:\n      sliver: {mode: append}\n"
    assert words(write({"anabranch.yml": MAIN, "entities/order.yml": order})) == [
        ("ENTITY_UNKNOWN_ZONE", "entities/order.yml:8:15", 'entity "order": there is no zone "sliver"',
         'did you mean "silver"?'),
        ("ENTITY_UNKNOWN_SOURCE", "entities/order.yml:3:13", 'entity "order": there is no source "fils"',
         'did you mean "files"?'),
        ("ENTITY_INCOMPLETE", "entities/order.yml:3:5",
         'entity "order": says no source, or format and path, to read',
         "name one of `sources`, or say `format` with `path`, or `topic` with `bootstrap`"),
    ]  # fmt: skip


def test_an_entity_in_two_files(write: Any) -> None:
    root = write({"anabranch.yml": MAIN, "entities/a.yml": ORDER, "entities/b.yml": ORDER})
    assert words(root) == [
        ("PROJECT_DECLARED_TWICE", "entities/b.yml:3:5",
         f"entities.order: declared a second time; the first is at {root}/entities/a.yml:3:5", "keep one of them"),
    ]  # fmt: skip


def test_a_value_that_is_not_there(write: Any) -> None:
    order = ORDER + "    reader: {x: 'a ${lading} b', y: '${env:SECRET}'}\n"
    assert words(write({"anabranch.yml": MAIN, "entities/order.yml": order})) == [
        ("PROJECT_UNKNOWN_VALUE", "entities/order.yml:7:17", 'there is no value "lading"', 'did you mean "landing"?'),
    ]  # fmt: skip


def test_values_of_an_environment(write: Any) -> None:
    root = write({"anabranch.yml": MAIN.replace("name: shop", "name: shop\nstorage: ${landing}/lake"),
                  "entities/order.yml": ORDER})  # fmt: skip
    project = examine_project(root).project
    assert project is not None
    assert (project.storage, project.environment) == (f"{root}/landing/lake", None)
    with environment("prod"):
        project = examine_project(root).project
        assert project is not None
        assert (project.storage, project.environment) == ("/data/in/lake", "prod")
    with environment("pord"):
        assert [(p.code, p.message, p.hint) for p in examine_project(root).problems] == [
            ("PROJECT_UNKNOWN_ENVIRONMENT", 'there is no environment "pord"; those there are: prod',
             'did you mean "prod"?'),
        ]  # fmt: skip


def test_the_environment_is_an_option_of_every_verb(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    root = write({"anabranch.yml": MAIN, "entities/order.yml": ORDER})
    assert main(["check", "--project", str(root), "--env", "prod"]) == 0
    assert main(["--env", "pord", "check", "--project", str(root)]) == 2
    assert 'there is no environment "pord"' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("    clean: archive\n", "`clean: archive` and `archive` go together"),
        ("    fields: {id: bigint}\n", "has both `schema` and `fields`"),
        ("    expectations: {x: {action: drop}}\n", "expectation x needs one of `rule` and `unique`"),
        ("    zones: {bronze: {transformers: [{dedupe: {keys: id}}]}}\n",
         "dedupe does not say for how long keys are remembered"),
        ("    format: kafka\n    topic: t\n", "has a topic without the address of its brokers"),
    ],
)  # fmt: skip
def test_what_does_not_go_together(write: Any, more: str, message: str) -> None:
    told = words(write({"anabranch.yml": MAIN, "entities/order.yml": ORDER + more}))
    assert [text for _, _, text, _ in told] == [f'entity "order": {message}']


def test_an_include_without_files(write: Any) -> None:
    assert words(write({"anabranch.yml": MAIN})) == [
        ("PROJECT_INCLUDE_NOT_FOUND", "anabranch.yml:2:11", 'include: no file matches "entities/*.yml"',
         "a path from the folder of this file, such as entities/*.yml"),
    ]  # fmt: skip


def test_functions_of_the_project(write: Any) -> None:
    code = """
    from anabranch.zones import register_zone_transformer

    @register_zone_transformer
    def plain(df, rate, zone):
        return df

    @register_zone_transformer("named")
    def other(df, **more):
        return df

    @register_zone_transformer("trim")
    def mine(df):
        return df
    """
    order = ORDER + "    zones:\n      silver: {transformers: [{plain: {rat: 1}}, {named: {any: 1}}]}\n"
    root = write({"anabranch.yml": MAIN, "entities/order.yml": order, "pipeline.py": code})
    assert words(root) == [
        ("TRANSFORMER_TWICE", "pipeline.py:12", '"trim" is the name of a transformer that is always there',
         "give it another name"),
        ("TRANSFORMER_ARGUMENT", "entities/order.yml:8:45",
         'entity "order", zone "silver": plain: unknown argument "rat"', 'did you mean "rate"?'),
        ("TRANSFORMER_ARGUMENT", "entities/order.yml:8:39",
         'entity "order", zone "silver": plain: missing argument "rate"', "arguments: rate"),
    ]  # fmt: skip


def test_the_template_is_what_the_schema_for_editors_says(tmp_path: Path) -> None:
    main_file = yaml.safe_load((TEMPLATE / "anabranch.yml").read_text().replace("{{ name }}", "x"))
    jsonschema.validate(main_file, json_schema())
    with pytest.raises(jsonschema.ValidationError, match="soures"):
        jsonschema.validate({**main_file, "soures": {}}, json_schema())
    for path in (TEMPLATE / "entities").glob("*.yml"):
        data = yaml.safe_load(path.read_text())
        jsonschema.validate(data, json_schema(included=True))
        wrong = json.loads(json.dumps(data))
        next(iter(wrong["entities"].values()))["kys"] = "id"
        with pytest.raises(jsonschema.ValidationError, match="kys"):
            jsonschema.validate(wrong, json_schema(included=True))


def test_the_schema_is_written_to_a_file(tmp_path: Path) -> None:
    assert main(["schema", "--out", str(tmp_path / "anabranch.json"), "-q"]) == 0
    assert json.loads((tmp_path / "anabranch.json").read_text()) == json_schema()


@pytest.mark.parametrize("name", [None, "kafka"])
def test_the_template_is_in_order_without_spark(tmp_path: Path, name: str | None) -> None:
    root = tmp_path / "shipping"
    shutil.copytree(TEMPLATE, root)
    spec = root / "anabranch.yml"
    spec.write_text(spec.read_text().replace("{{ name }}", "shipping"))
    with environment(name):
        pipeline, problems = found(root)
    assert problems == []
    tables = [d.name for d in pipeline.datasets if d.name.startswith(("bronze.", "silver.")) and d.is_output]
    assert len(tables) == 18
