"""`open_lineage` and `spans` in the project file, and the names that datasets get."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_lake import Lake

from anabranch.core.places import Place, place_of_output, places_of_source
from anabranch.errors import ProjectErrors


def test_what_the_file_says(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "open_lineage: {file: out/l.jsonl}\nspans: {endpoint: 'https://otel.example/'}\n")
    lineage, spans = lake.project.open_lineage, lake.project.spans
    assert lineage is not None
    assert (lineage.file, lineage.url, lineage.namespace) == (tmp_path / "out" / "l.jsonl", None, "anabranch")
    assert spans is not None
    assert (spans.endpoint, spans.service) == ("https://otel.example/v1/traces", "anabranch")


def test_a_path_of_the_collector_is_kept(tmp_path: Path) -> None:
    spans = Lake(tmp_path, "spans: {endpoint: 'http://otel:4318/mine', service: etl}\n").project.spans
    assert spans is not None
    assert (spans.endpoint, spans.service) == ("http://otel:4318/mine", "etl")


@pytest.mark.parametrize(
    ("said", "message", "code"),
    [
        ("open_lineage: {}", "open_lineage: needs either a file or a url", "PROJECT_BAD_VALUE"),
        ("open_lineage: {file: a, url: 'http://b/'}", "open_lineage: needs either", "PROJECT_BAD_VALUE"),
        ("open_lineage: {url: 'marquez:5000'}", "marquez:5000 is not an address", "PROJECT_BAD_VALUE"),
        ("open_lineage: {url: 'http://b:x/'}", "is not an address", "PROJECT_BAD_VALUE"),
        ("open_lineage: {url: 'http://b/', token: plain}", "names a secret", "PROJECT_BAD_VALUE"),
        ("open_lineage: {file: a, token: '${env:T}'}", "token goes with a url", "PROJECT_BAD_VALUE"),
        ("open_lineage: {file: ''}", "must not be empty", "PROJECT_BAD_VALUE"),
        ("open_lineage: {path: a}", "open_lineage.path: unknown field", "PROJECT_UNKNOWN_FIELD"),
        ("spans: {}", "spans.endpoint: missing field", "PROJECT_MISSING_FIELD"),
        ("spans: {endpoint: 'ftp://a'}", "is not an address", "PROJECT_BAD_VALUE"),
    ],
)
def test_what_it_must_not_say(tmp_path: Path, said: str, message: str, code: str) -> None:
    with pytest.raises(ProjectErrors) as raised:
        _ = Lake(tmp_path, f"{said}\n").project
    found = next(p for p in raised.value.problems if message in p.message)
    assert (found.code, found.where and found.where.line) == (code, 2)
    assert found.hint


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"path": "/in/a b"}, Place("file", "/in/a b")),
        ({"path": "file:///in/a%20b"}, Place("file", "/in/a b")),
        ({"path": "s3a://key:pw@bucket/a/b"}, Place("s3://bucket", "a/b")),
        (
            {"path": "abfss://box@account.dfs.core.windows.net/a"},
            Place("abfss://box@account.dfs.core.windows.net", "/a"),
        ),
        (
            {"url": "jdbc:postgresql://u:pw@db/shop", "dbtable": "sales.orders"},
            Place("postgres://db:5432", "shop.sales.orders"),
        ),
        (
            {"url": "postgresql+psycopg://db:6432/shop?password=pw", "dbtable": 'SELECT * FROM "orders"'},
            Place("postgres://db:6432", "shop.public.orders"),
        ),
        (
            {"url": "jdbc:sqlserver://db:1433;database=a;password=pw", "dbtable": "dbo.t"},
            Place("mssql://db:1433", "dbo.t"),
        ),
        ({"url": "jdbc:mysql://db/shop", "dbtable": "t"}, Place("mysql://db:3306", "shop.t")),
        ({"kafka.bootstrap.servers": "a:1,b:2", "subscribepattern": "x.*,y"}, Place("kafka://a:1", "x.*,y")),
    ],
)
def test_sources_get_the_names_that_others_know_them_by(options: dict[str, str], place: Place) -> None:
    (found,) = places_of_source("any", options)
    assert found == place
    assert "pw" not in repr(found)


def test_outputs_that_are_kept_nowhere() -> None:
    assert place_of_output("mine", "foreach_batch", "/lake/staged/mine", {}) == Place("inmemory://", "mine")
    assert place_of_output("mine", "kafka", "kafka://t", {"kafka.bootstrap.servers": "a:1", "topic": "t"}) == Place(
        "kafka://a:1", "t"
    )
