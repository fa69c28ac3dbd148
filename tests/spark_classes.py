"""How the JVMs of tests are started, and what they need not load anew: Spark's classes, in an archive.

python tests/spark_classes.py

makes the archive, once. A JVM that it does not fit leaves it aside.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

#: JVMs of tests live for seconds or minutes: code compiled well for hours to come, and collecting garbage in parallel,
#: take two fifths of the processor for nothing.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

#: With it, a start takes about half. Nothing is said of one that does not fit: tests look at what a run prints.
SHARED = f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"

#: It takes half a minute, and longer where jars must be fetched first; one that hangs is done without.
_SECONDS = 600.0

#: The quickstart, by Spark and by the native pass.
_RUN = """
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from py4j.protocol import Py4JError
from pyspark import SparkContext
from anabranch.cli.init import write_project
from anabranch.engine.run import run
from anabranch.load.project import read_project

for name, native in (("general", "false"), ("workers", "true")):
    write_project(Path(name), "quickstart")
    project = read_project(Path(name))
    configuration = {**project.configuration, "spark.anabranch.native": native}
    run(replace(project, configuration=configuration), once=True, listener=lambda event: None)
with suppress(Py4JError, ConnectionError):  # it does not live to answer
    SparkContext._gateway.jvm.System.exit(0)
"""


def main() -> int:
    """Run something, and keep what was loaded for it; nothing to do if that was done before."""
    if ARCHIVE.exists():
        return 0
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.jsa"
        own = {**os.environ, "JDK_JAVA_OPTIONS": QUICK, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={made}"}
        # The JVM writes the archive when Python has ended: it has the same pipe, which is read to its end.
        with subprocess.Popen(
            [sys.executable, "-c", _RUN],
            cwd=folder,
            env=own,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said, _ = process.communicate()
        if process.returncode or not made.exists():
            sys.stderr.write(f"{said.decode()[-4000:]}\nno archive of Spark's classes: tests take longer\n")
            return 1
        aside = ARCHIVE.with_suffix(f".{os.getpid()}")  # beside it: the archive is there whole, or not at all
        shutil.copyfile(made, aside)
        aside.replace(ARCHIVE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
