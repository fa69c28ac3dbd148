"""The examples: what their READMEs say to type is typed, what comes out is compared with a model in plain Python."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch import read
from anabranch.cli.main import main

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(path.parent.name for path in ROOT.glob("*/anabranch.yml"))


class Example:
    """A copy of an example, with its README."""

    def __init__(self, name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder / name, capsys
        kept = shutil.ignore_patterns("lake", "__pycache__", *(["landing"] if name == "fan_in" else []))
        shutil.copytree(ROOT / name, self.folder, ignore=kept)
        self.blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (self.folder / "README.md").read_text(), re.M | re.S)

    def follow(self, block: int = 0) -> list[int]:
        """Type the commands of the README's shell block; the exit codes. What it shows after them must be said."""
        shells = [i for i, (language, _) in enumerate(self.blocks) if language == "sh"]
        said, codes, errors = "", [], ""
        for line in self.blocks[shells[block]][1].splitlines():
            code, said, error = self.type(line)
            codes.append(code)
            errors += error
        shown = self.blocks[shells[block] + 1 : shells[block] + 2]
        if shown and shown[0][0] == "text":
            assert said.split() == shown[0][1].split(), errors
        return codes

    def type(self, line: str) -> tuple[int, str, str]:
        """Type a command in the example's folder: its exit code, output and errors."""
        words = shlex.split(line)
        if words[0] == "anabranch":
            self._capsys.readouterr()
            with contextlib.chdir(self.folder):
                code = main(words[1:])
            return (code, *self._capsys.readouterr())
        program = [sys.executable, *words[1:]] if words[0] == "python" else ["sh", "-c", line]
        done = subprocess.run(program, cwd=self.folder, check=True, capture_output=True, text=True)
        return 0, done.stdout, done.stderr

    def landed(self, *names: str) -> list[dict[str, Any]]:
        """The rows of the JSON files that landed."""
        files = sorted((self.folder / "landing").glob("*.json"))
        return [json.loads(line) for f in files if not names or f.name in names for line in f.read_text().splitlines()]

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        found = read.cut(self.folder).arrow(table).select(list(columns)).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)


@pytest.fixture
def example(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str], spark: Any
) -> Iterator[Example]:
    """The example that a test is named after; Spark stands in its folder, as one that was started there."""
    made = Example(request.function.__name__.removeprefix("test_"), tmp_path, capsys)
    hadoop = spark._jvm.org.apache.hadoop.fs
    files = hadoop.FileSystem.get(spark._jsc.hadoopConfiguration())
    before = files.getWorkingDirectory()
    files.setWorkingDirectory(hadoop.Path(str(made.folder)))
    yield made
    files.setWorkingDirectory(before)


def ordered(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def test_every_example_has_a_test() -> None:
    assert {f"test_{name}" for name in EXAMPLES} <= set(globals())
    assert len(EXAMPLES) == 5


BY_FAX = """

@dp.append_flow(target="orders")
def by_fax() -> DataFrame:
    orders = spark.readStream.schema("id STRING, amount INT").json("landing/fax")
    return orders.withColumn("shop", F.lit("fax"))
"""


def test_fan_in(example: Example) -> None:
    def expected(number: int) -> list[tuple[Any, ...]]:
        shops = (((f"w{i}", 10 * i, "web"), (f"t{i}", 5 * i, "tills"), (f"p{i}", i, "partners")) for i in range(number))
        return [row for rows in shops for row in rows]

    assert set(example.follow()) == {0}
    assert example.rows("orders", "id", "amount", "shop") == ordered(expected(4))
    assert [example.type(line)[0] for line in ("python make_data.py", "anabranch run")] == [0, 0]
    assert example.rows("orders", "id", "amount", "shop") == ordered(expected(8))
    with (example.folder / "transformations" / "orders.py").open("a") as file:
        file.write(BY_FAX)
    (example.folder / "landing" / "fax").mkdir()
    (example.folder / "landing" / "fax" / "0.json").write_text('{"id": "f0", "amount": 7}\n')
    assert example.type("anabranch run")[0] != 0
    assert example.type("anabranch run --full-refresh orders")[0] == 0
    assert example.rows("orders", "id", "amount", "shop") == ordered([*expected(8), ("f0", 7, "fax")])


def test_regional_tables(example: Example) -> None:
    assert set(example.follow()) == {0}
    file = example.folder / "transformations" / "orders.py"
    regions = ["americas", "asia", "europe"]
    for added in ([], ["antarctica"]):
        if added:
            file.write_text(file.read_text().replace('"americas", ', '"americas", "antarctica", '))
            assert example.type("anabranch run")[0] == 0
        orders = {r: [(o["id"], o["amount"]) for o in example.landed() if o["region"] == r] for r in regions + added}
        for region, expected in orders.items():
            assert example.rows(f"orders_{region}", "id", "amount") == ordered(expected)
        totals = ((region, len(found), sum(a for _, a in found)) for region, found in orders.items())
        assert example.rows("revenue", "region", "orders", "amount") == ordered(totals)


def test_many_destinations(example: Example) -> None:
    assert set(example.follow()) == {0}
    landed = example.landed()
    totals = [(o["id"], o["customer"], sum(line["cents"] for line in o["lines"])) for o in landed]
    assert example.rows("orders", "id", "customer", "cents") == ordered(totals)
    lines = ((o["id"], line["sku"], line["cents"]) for o in landed for line in o["lines"])
    assert example.rows("order_lines", "id", "sku", "cents") == ordered(lines)
    archived = {i: json.loads(document) for i, document in example.rows("archive", "id", "document")}
    assert archived == {o["id"]: o for o in landed}
    assert (example.folder / "lake" / "archive" / "orders" / "_delta_log").is_dir()
    alerts = json.loads((example.folder / "lake" / "alerts" / "0.json").read_text())
    assert ordered(tuple(a.values()) for a in alerts) == ordered(row for row in totals if row[2] > 10_000)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
def test_cdc_history(order: tuple[int, ...], example: Example) -> None:
    for place, number in enumerate(order):
        os.utime(example.folder / "landing" / f"{number}.json", (1_700_000_000 + place, 1_700_000_000 + place))
    assert set(example.follow()) == {0}
    history: list[tuple[Any, ...]] = []
    newest: list[tuple[Any, ...]] = []
    for key in (1, 2, 3):
        changes = {c["version"]: c for c in example.landed() if c["id"] == key}
        versions = sorted(changes)
        for version, until in zip(versions, [*versions[1:], None], strict=True):
            change = changes[version]
            if change["op"] != "delete":
                history.append((key, change["name"], change["city"], version, until))
        last = changes[versions[-1]]
        newest += [] if last["op"] == "delete" else [(key, last["name"], last["city"])]
    assert example.rows("people", "id", "name", "city") == ordered(newest)
    assert example.rows("people_history", "id", "name", "city", "__START_AT", "__END_AT") == ordered(history)


def test_quality(example: Example) -> None:
    assert set(example.follow()) == {0}

    def model(*names: str) -> tuple[list[Any], list[Any]]:
        landed = example.landed(*names)
        aside = [o for o in landed if not (o["amount"] or 0) > 0]
        kept = [o for o in landed if o not in aside and o["id"] is not None]
        return [tuple(o.values()) for o in kept], [(o["id"], *sorted(reasons(o))) for o in aside]

    def reasons(order: dict[str, Any]) -> set[str]:
        broken = {"known_country": order["country"] not in ("de", "fr"), "has_id": order["id"] is None}
        return {"positive_amount"} | {name for name, is_so in broken.items() if is_so}

    def aside() -> list[tuple[Any, ...]]:
        rows = example.rows("orders_quarantine", "payload", "reasons")
        return ordered((json.loads(payload).get("id"), *sorted(why)) for payload, why in rows)

    def holds(*names: str) -> bool:
        kept, set_aside = model(*names)
        return (example.rows("orders", "id", "country", "amount", "currency"), aside()) == (
            ordered(kept),
            ordered(set_aside),
        )

    assert holds()
    typed = example.follow(1)
    assert typed == [0, 0, 4], example.type("anabranch epochs --json")
    assert holds("1.json")
    bad = example.folder / "landing" / "2.json"
    bad.write_text(bad.read_text().replace("USD", "EUR"))
    assert example.type("anabranch run")[0] == 0
    assert holds("1.json", "2.json")
