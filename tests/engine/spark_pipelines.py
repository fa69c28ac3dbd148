"""Spark's own `spark-pipelines` command on a project folder, to compare with: what it says, writes and scans."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.dataset as ds

SPEC = "spark-pipeline.yml"

#: What makes a Python process talk to a JVM that is there already: this command must start its own.
_OF_ANOTHER_JVM = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_HOME", "SPARK_REMOTE")


@dataclass(frozen=True)
class Done:
    """How the command ended."""

    code: int
    output: str

    @property
    def completed(self) -> set[str]:
        """The flows that came to their end, by the command's own words."""
        return set(re.findall(r"Flow spark_catalog\.default\.(\w+) has COMPLETED", self.output))


@dataclass(frozen=True)
class SparkPipelines:
    """A project in a folder of its own, with a Derby catalogue that outlives a run, and tables in Parquet."""

    root: Path

    @property
    def warehouse(self) -> Path:
        return self.root / "spark-warehouse"  # where Hive puts it, whatever spark.sql.warehouse.dir says

    @property
    def storage(self) -> Path:
        return self.root / "storage"

    def write(self, code: str, **more: str) -> None:
        """The project's code, `more` files by name with `_` for the dot, and its spec with all that Spark asks for."""
        folder = self.root / "transformations"
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {"pipeline_py": code, **more}.items():
            (folder / ".".join(name.rsplit("_", 1))).write_text(text)
        spec = {
            "name": "compared",
            "storage": self.storage.as_uri(),
            "libraries": [{"glob": {"include": "transformations/**"}}],
        }
        (self.root / SPEC).write_text(json.dumps(spec))

    def run(self, *options: str) -> Done:
        """`spark-pipelines run`."""
        return self._command("run", *options)

    def dry_run(self) -> Done:
        """`spark-pipelines dry-run`."""
        return self._command("dry-run")

    def _command(self, verb: str, *options: str) -> Done:
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.pipelines.maxFlowRetryAttempts": "0",
            "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:{self.root}/catalogue;create=true",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={self.root}",
        }
        # The command starts a second JVM, which gets only some of what is said with --conf.
        (self.root / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        program = Path(sys.executable).with_name("spark-pipelines")
        env = {name: value for name, value in os.environ.items() if name not in _OF_ANOTHER_JVM}
        env |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(self.root)}
        done = subprocess.run(
            [program, verb, "--spec", self.root / SPEC, *options],
            cwd=self.root,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=240,
        )
        return Done(done.returncode, done.stdout)

    def rows(self, table: str) -> pa.Table:
        """The rows of a table, read without Spark."""
        files = [str(path) for path in sorted((self.warehouse / table).glob("*.parquet"))]
        assert files, f"nothing was written for {table}"
        return ds.dataset(files, format="parquet").to_table()

    def rows_listed(self, table: str) -> pa.Table:
        """The rows of a streaming table that its log names: what Spark itself reads of it."""
        log = sorted(p for p in (self.warehouse / table / "_spark_metadata").iterdir() if p.name.isdigit())
        entries = [json.loads(line) for path in log for line in path.read_text().splitlines()[1:]]
        files = [unquote(urlparse(entry["path"]).path) for entry in entries]
        return ds.dataset(files, format="parquet").to_table()


def files_scanned(storage: Path) -> list[set[str]]:
    """For each scan of a source of files that a checkpoint below `storage` tells of, the names of the files it read."""
    return [_file_names(log) for log in sorted(storage.glob("**/sources/*"))]


def _file_names(log: Path) -> set[str]:
    text = "".join(path.read_text() for path in log.iterdir() if not path.name.startswith("."))
    return {Path(unquote(urlparse(path).path)).name for path in re.findall(r'"path":"([^"]+)"', text)}
