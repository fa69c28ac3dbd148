"""Opening Spark: quiet, tidy, gone when we are gone, and clear about what is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from anabranch.engine.java import java
from anabranch.errors import SetupError


def fake_java(home: Path, says: str) -> None:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    (home / "bin" / "java").chmod(0o755)


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError) as caught:
        java()
    assert caught.value.code == "JAVA_MISSING"
    assert caught.value.exit_code == 2
    assert "openjdk-17-jre-headless" in str(caught.value.hint)


def test_java_home_comes_before_path_and_must_hold_a_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=str(tmp_path)) as caught:
        java()
    assert caught.value.code == "JAVA_MISSING"
    fake_java(tmp_path, 'openjdk version "21.0.2" 2024-01-16')
    assert (java().path, java().major) == (tmp_path / "bin" / "java", 21)


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_402", "25"])
def test_a_java_spark_cannot_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    fake_java(tmp_path, f'openjdk version "{version}"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match=version) as caught:
        java()
    assert caught.value.code == "JAVA_VERSION"


def test_a_java_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake_java(tmp_path, "Error: could not find libjava.so")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SetupError, match="libjava") as caught:
        java()
    assert caught.value.code == "JAVA_MISSING"


def run(program: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    cwd.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, env=os.environ | environment, capture_output=True, text=True
    )


FULL_LIFE = """
import json, signal
from pathlib import Path
from anabranch.engine.session import LOCAL_CHECKPOINT, log_file, open_session
from anabranch.errors import SetupError
from pyspark.errors import PySparkException

logs, result = Path("../a log folder"), {}
handler = lambda *_: None
signal.signal(signal.SIGINT, handler)
try:
    open_session(app_name="t", log_folder=logs, settings={"spark.master": "local[many]"})
except SetupError as error:
    result["refused"] = error.as_record()
settings = {"spark.sql.shuffle.partitions": "3", "spark.driver.maxResultSize": "77m", **LOCAL_CHECKPOINT,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"}
spark = open_session(app_name="t", log_folder=logs, settings=settings)
result["same"] = open_session(app_name="other", log_folder=Path("elsewhere")) is spark
result["sigint"] = signal.getsignal(signal.SIGINT) is handler
result["log"] = str(log_file())
keys = [*settings, "spark.sql.session.timeZone", "spark.ui.enabled", "spark.master"]
result["conf"] = {key: spark.conf.get(key) for key in keys}
spark.sql("CREATE TABLE t USING delta AS SELECT id FROM range(10)")
result["rows"] = spark.sql("SELECT id % 3, count(*) FROM t GROUP BY 1").count()
spark.createDataFrame([(1,)], "a int").rdd.map(lambda row: print("noise of a worker")).count()
for failing in ("SELECT nope FROM t", "SELECT 1 / (id - id) FROM t"):
    try:
        spark.sql(failing).collect()
        result[failing] = "did not fail"
    except PySparkException as error:
        result[failing] = error.getCondition()
stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().writeStream
query = stream.foreachBatch(lambda frame, n: None).option("checkpointLocation", "../checkpoint")
query = query.trigger(once=True).start()
query.awaitTermination()
spark.stop()
again = open_session(app_name="again", log_folder=logs)
result["again"] = [again.range(3).count(), again.read.format("delta").load(str(logs / "warehouse" / "t")).count()]
Path("../result.json").write_text(json.dumps(result))
"""


@pytest.fixture(scope="module")
def full_life(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A session refused, one opened and used for about everything, one opened after it was stopped."""
    folder = tmp_path_factory.mktemp("full life")
    return folder, run(FULL_LIFE, folder / "cwd")


@pytest.mark.spark
def test_nothing_reaches_the_terminal(full_life: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = full_life
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.spark
def test_nothing_is_left_in_the_current_folder(full_life: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = full_life
    assert list((folder / "cwd").iterdir()) == []


@pytest.mark.spark
def test_the_session_is_what_was_asked_for(full_life: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = full_life
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    conf = result["conf"]
    assert conf["spark.sql.shuffle.partitions"] == "3"
    assert conf["spark.driver.maxResultSize"] == "77m"
    assert "DeltaSparkSessionExtension" in conf["spark.sql.extensions"]
    assert "IcebergSparkSessionExtensions" in conf["spark.sql.extensions"]
    assert (conf["spark.sql.session.timeZone"], conf["spark.ui.enabled"]) == ("UTC", "false")
    assert conf["spark.master"] == "local[*]"
    assert (result["rows"], result["again"]) == (3, [3, 10])
    assert (result["same"], result["sigint"]) == (True, True)
    assert result["SELECT nope FROM t"].startswith("UNRESOLVED_COLUMN")
    assert result["SELECT 1 / (id - id) FROM t"] == "DIVIDE_BY_ZERO"


@pytest.mark.spark
def test_what_spark_had_to_say_is_in_the_log(full_life: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = full_life
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    log = folder / "a log folder" / "spark.log"
    assert result["log"] == str(log)
    text = log.read_text()
    assert "DIVIDE_BY_ZERO" in text
    assert "noise of a worker" in text
    assert " INFO " not in text


@pytest.mark.spark
def test_a_refused_setting_is_a_setup_error_with_the_log(
    full_life: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = full_life
    refused = json.loads((folder / "result.json").read_text())["refused"]
    assert refused["code"] == "SPARK_START_FAILED"
    assert "local[many]" in refused["message"]
    assert refused["details"]["log"] == str(folder / "a log folder" / "spark.log")


START_ONLY = """
import sys
from pathlib import Path
from anabranch.engine.session import open_session
from anabranch.errors import SetupError
try:
    open_session(app_name="t", log_folder=Path("../logs"), settings={settings})
except SetupError as error:
    print(error.code, error.message, error.details.get("log"), error.details.get("last_lines"), sep="\\n")
    sys.exit(error.exit_code)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.spark
def test_a_jvm_that_dies_at_the_start(tmp_path: Path) -> None:
    settings = {"spark.driver.extraJavaOptions": "-Xss1k"}
    done = run(START_ONLY.format(settings=settings), tmp_path / "cwd")
    code, message, log, last_lines = done.stdout.splitlines()
    assert (done.returncode, code, done.stderr) == (2, "SPARK_START_FAILED", "")
    assert "stack size" in message
    assert "stack size" in last_lines
    assert log == str(tmp_path / "logs" / "spark.log")


@pytest.mark.spark
def test_a_log_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("")
    done = run(START_ONLY.format(settings={}), tmp_path / "cwd")
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (2, "LOG_NOT_WRITABLE", "")


@pytest.mark.spark
def test_no_java_stops_before_anything_is_written(tmp_path: Path) -> None:
    done = run(START_ONLY.format(settings={}), tmp_path / "cwd", PATH=str(tmp_path), JAVA_HOME="")
    assert (done.returncode, done.stdout.splitlines()[0], done.stderr) == (2, "JAVA_MISSING", "")
    assert [path.name for path in tmp_path.iterdir()] == ["cwd"]


@pytest.mark.spark
def test_spark_connect_is_refused(tmp_path: Path) -> None:
    done = run(START_ONLY.format(settings={}), tmp_path / "cwd", SPARK_REMOTE="sc://localhost")
    assert (done.returncode, done.stdout.splitlines()[0]) == (2, "SPARK_REMOTE_UNSUPPORTED")


@pytest.mark.spark
def test_a_session_without_delta_is_refused(tmp_path: Path) -> None:
    first = 'from pyspark.sql import SparkSession\nSparkSession.builder.master("local[1]").getOrCreate()\n'
    done = run(first + START_ONLY.format(settings={}), tmp_path / "cwd")
    assert (done.returncode, done.stdout.splitlines()[0]) == (2, "DELTA_MISSING")


@pytest.mark.spark
@pytest.mark.crash
def test_the_jvm_goes_when_this_process_is_killed(tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    program = START_ONLY.format(settings={})
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path / "cwd", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        children = psutil.Process(process.pid).children()  # the JVM has some, now and then, of Hadoop's own
        assert [child.name() for child in children] == ["java"]
        process.send_signal(signal.SIGKILL)
    gone, alive = psutil.wait_procs(children, timeout=120)
    assert (len(gone), alive) == (1, [])
