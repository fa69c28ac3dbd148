"""`anabranch graph`: every form, from the files alone."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from anabranch.cli.graph import as_dot, as_mermaid
from anabranch.cli.main import main
from anabranch.core.graph_html import as_html, places
from anabranch.core.lineage import Edge, Lineage, Node

FILE = """
from anabranch import pipelines as dp

@dp.table(name="bronze.orders")
def read():
    return spark.readStream.table("shop.raw.orders")

@dp.table(name="silver.orders", comment="<b>clean</b>")
@dp.expect_or_quarantine("positive", "amount > 0")
def clean():
    return spark.readStream.table("bronze.orders")

@dp.materialized_view(name="gold.totals")
def totals():
    return spark.read.table("silver.orders").groupBy().count()

@dp.table
def loose():
    return spark.readStream.json("landing")
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "anabranch.yml").write_text("name: shop\n")
    (tmp_path / "pipeline.py").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("shop")
def test_text_has_what_each_dataset_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "shop"
    assert "  bronze.orders             streaming table    <- shop.raw.orders" in lines
    assert "  silver.orders             streaming table    <- bronze.orders" in lines
    assert "  silver.orders_quarantine  quarantine table   <- silver.orders" in lines
    assert "  gold.totals               materialized view  <- silver.orders" in lines


@pytest.mark.usefixtures("shop")
def test_json_has_zones_channels_and_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert main(["graph", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document
    nodes = {n["name"]: n for n in document["nodes"]}
    assert nodes["shop.raw.orders"]["kind"] == "table from outside"
    assert nodes["silver.orders"] == {
        "name": "silver.orders",
        "kind": "streaming table",
        "zone": "silver",
        "channel": "bronze.orders",
        "format": "delta",
        "comment": "<b>clean</b>",
        "owner": None,
        "tags": {},
        "where": "pipeline.py:10",
    }
    assert {"from": "bronze.orders", "to": "silver.orders", "flow": "silver.orders"}.items() <= document["edges"][
        1
    ].items()


@pytest.mark.usefixtures("shop")
def test_mermaid_and_dot_have_zones_as_lanes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "--format", "mermaid"]) == 0
    mermaid = capsys.readouterr().out
    assert mermaid.startswith("flowchart LR\n")
    assert re.findall(r'subgraph z\d\["(\w+)"\]', mermaid) == ["bronze", "silver", "gold"]
    assert main(["graph", "--format", "dot"]) == 0
    dot = capsys.readouterr().out
    assert dot.startswith("digraph {\n")
    assert '"bronze.orders" -> "silver.orders"' in dot
    assert dot.count("subgraph cluster_") == 3


def test_the_sources_that_a_run_has_named(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shop / "lake" / "_anabranch" / "checkpoints" / "loose"
    for generation, path in (("1", "old"), ("2", f"{shop}/landing")):
        (folder / generation).mkdir(parents=True)
        (folder / generation / "anabranch.json").write_text(json.dumps({"sources": [f"json path={path}"]}))
    assert main(["graph"]) == 0
    assert "streaming table    <- json path=landing\n" in capsys.readouterr().out


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]


HOSTILE = "</title><script>alert(1)</script>\"'&"


@pytest.mark.usefixtures("shop")
def test_html_asks_for_nothing_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "--format", "html"]) == 0
    text = capsys.readouterr().out
    page = _Page()
    page.feed(text)
    assert page.links == []
    assert not {"script", "link", "img", "iframe", "b"} & {*page.tags}
    assert "url(" not in text.replace("url(#tip)", "")
    assert "@import" not in text
    assert "default-src 'none'" in text
    assert "&lt;b&gt;clean&lt;/b&gt;" in text
    assert page.tags.count("g") == 6
    assert text.count('class="lane"') == 3


def test_names_cannot_break_out_of_any_form() -> None:
    hostile = Lineage((Node(HOSTILE, "source"), Node("b", "sink")), (Edge(HOSTILE, "b", HOSTILE, sure=False),))
    page = _Page()
    page.feed(as_html(HOSTILE, hostile))
    assert "script" not in page.tags
    assert page.tags.count("g") == 2
    mermaid = as_mermaid(hostile)
    assert "<script" not in mermaid
    assert mermaid.splitlines()[1].count('"') == 2
    assert '\\"' in as_dot(hostile)


def test_places_go_from_left_to_right() -> None:
    nodes = (Node("in", "source"), Node("a.x", "t"), Node("a.y", "t"), Node("b.z", "t"))
    edges = (Edge("in", "a.x", "f"), Edge("a.x", "a.y", "f"), Edge("a.x", "b.z", "f"))
    found = {"in": (0, 0), "a.x": (1, 0), "a.y": (2, 1), "b.z": (3, 0)}  # a.y is not in the way of what b.z reads
    assert places(Lineage(nodes, edges)) == found
    loose = (*nodes, Node("q", "t"), Node("r", "t"))
    assert places(Lineage(loose, (*edges, Edge("b.z", "r", "f")))) == {**found, "q": (1, 2), "r": (4, 2)}


def test_without_zones_columns_follow_what_is_read() -> None:
    nodes = (Node("a", "t"), Node("b", "t"), Node("c", "t"))
    assert places(Lineage(nodes, (Edge("a", "b", "f"), Edge("a", "c", "f")))) == {"a": (0, 0), "b": (1, 0), "c": (1, 1)}
