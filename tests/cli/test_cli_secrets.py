"""Secrets of a project that is run, fails, is planned and looked at: their values are then searched for everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))
from webhook_receiver import Receiver

pytestmark = pytest.mark.spark

#: Some with characters that are written in another way in JSON, addresses and Python.
SECRETS = {
    "CONF_SECRET": "conf-6f1d\"q'uote",
    "READER_SECRET": "reader-88aa/slash+plus",
    "HOOK_TOKEN": "hook-c0ffee-{brace}-$dollar",
    "FUNCTION_SECRET": "function-5eed \\back täil",
    "UDF_SECRET": "udf-0ddba11",
}
INLINE = "inline-pw-77"

SPEC = {
    "name": "shop",
    "configuration": {
        "spark.acme.something": "${env:CONF_SECRET}",
        "spark.sql.pipelines.maxFlowRetryAttempts": "0",
        "spark.logConf": "true",
    },
}

CODE = """
from pathlib import Path

from pyspark.sql import functions as F

from anabranch import pipelines as dp
from anabranch import secret

HERE = Path(__file__).parents[1]
MODE = (HERE / "mode").read_text()


@dp.temporary_view
def orders():
    reader = spark.readStream.schema("id INT").option("acme.key", "${env:READER_SECRET}")
    return reader.options(pathGlobFilter="${env:GLOB}").json(str(HERE / "landing"))  # looked up, or nothing is read


@F.udf("int")
def checked(number):
    if MODE == "udf":
        raise ValueError("cannot look up with " + UDF_SECRET)
    return number


UDF_SECRET = secret("env:UDF_SECRET")


@dp.table
def kept():
    return spark.readStream.table("orders").select(checked("id").alias("id"))


dp.create_sink(
    "alerts",
    "webhook",
    {
        "url": (HERE / "url").read_text().replace("//", "//ann:INLINE@"),
        "headers.X-Token": "Bearer ${env:HOOK_TOKEN}",
        "patience": "0.5",
        "tries": "1",
    },
)


@dp.append_flow(target="alerts")
def all_alerts():
    return spark.readStream.table("orders")


@dp.foreach_batch_sink
def elsewhere(df, batch_id):
    password = secret("env:FUNCTION_SECRET")
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    (HERE / "seen").write_text(str(secret("env:READER_SECRET").encode() in b"".join(lines)))
    assert spark.conf.get("spark.acme.something") == secret("env:CONF_SECRET")
    if MODE == "function":
        raise ValueError(f"cannot log in with {password!r} ({password}) at postgresql://u:INLINE@db/shop")


@dp.append_flow(target="elsewhere")
def all_elsewhere():
    return spark.readStream.table("orders")
""".replace("INLINE", INLINE)

#: Everything that says something, in one process with one JVM.
CHILD = """
import sys
from pathlib import Path
from anabranch.cli.main import main

codes = []
for mode, *words in (
    ("function", "run", "--once", "--debug"),
    ("function", "--json", "run", "--once"),
    ("", "--json", "plan"),
    ("", "run", "--once"),
    ("udf", "--json", "run", "--once", "--full-refresh-all"),
    ("", "status", "--json"),
    ("", "epochs", "--json"),
    ("", "recover"),
    ("", "check", "-v"),
    ("", "plan", "--static"),
):
    Path("mode").write_text(mode)
    codes.append(main(words))
print(codes)
"""


@dataclass(frozen=True)
class Ran:
    root: Path
    out: str
    err: str
    receiver: Receiver


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    root = tmp_path_factory.mktemp("shop")
    (root / "anabranch.yml").write_text(json.dumps(SPEC))
    (root / "transformations").mkdir()
    (root / "transformations" / "pipeline.py").write_text(CODE)
    (root / "landing").mkdir()
    (root / "landing" / "1.json").write_text('{"id": 1}\n{"id": 2}\n')
    answer = f"who is {SECRETS['HOOK_TOKEN']}? {INLINE}"
    with Receiver(always=(500, {"body": answer})) as receiver:
        (root / "url").write_text(receiver.url)
        done = subprocess.run(
            [sys.executable, "-c", CHILD],
            cwd=root,
            env={**os.environ, **SECRETS, "GLOB": "[0-9].json"},
            capture_output=True,
            text=True,
        )
    (root / "url").unlink()
    assert done.returncode == 0, done.stderr
    return Ran(root, done.stdout, done.stderr, receiver)


def test_the_secrets_were_used(ran: Ran) -> None:
    """Or there would be nothing to hide."""
    assert ran.out.splitlines()[-1] == "[1, 1, 0, 0, 1, 0, 0, 0, 0, 0]", ran.err
    assert ran.receiver.requests[0][1]["X-Token"] == f"Bearer {SECRETS['HOOK_TOKEN']}"
    assert ran.receiver.requests[0][1]["Authorization"].startswith("Basic ")
    assert ran.receiver.requests[0][2]["rows"] == [{"id": 1}, {"id": 2}]


def test_what_was_said_of_them_is_still_said(ran: Ran) -> None:
    log = (ran.root / "lake" / "_anabranch" / "logs" / "spark.log").read_text()
    kept = [p for p in (ran.root / "lake" / "_anabranch").rglob("*") if p.is_file() and p.name != "spark.log"]
    history = b"".join(p.read_bytes() for p in kept).decode("utf-8", "replace")
    for text in (ran.err, ran.out, log, history):
        assert "cannot log in with '***' (***) at postgresql://u:***@db/shop" in text
    assert "who is ***" in history
    assert "cannot look up with ***" in ran.out
    assert "cannot look up with ***" in log


def test_none_is_on_a_command_line(ran: Ran) -> None:
    assert (ran.root / "seen").read_text() == "False"


@pytest.mark.parametrize("name", [*SECRETS, "INLINE"])
def test_none_is_written_or_printed(ran: Ran, name: str) -> None:
    value = SECRETS.get(name, INLINE)
    core = max(value.replace("\\", " ").replace('"', " ").replace("/", " ").split(), key=len)  # however it is escaped
    files = [p for p in (ran.root / "lake").rglob("*") if p.is_file()]
    assert len(files) > 10
    assert [p for p in files if core.encode() in p.read_bytes() or value.encode() in p.read_bytes()] == []
    assert core not in ran.out
    assert core not in ran.err
