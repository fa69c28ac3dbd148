"""The one Spark session of a process: quiet, offline, and leaving nothing in the current folder.

Spark runs in a JVM beside this process. Everything it or its launcher would print goes to `spark.log` in the log
folder. The JVM reads our end of a pipe as its standard input and ends when that pipe closes, so it cannot outlive this
process, however this process dies.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.core.secrets import has_secret, reveal
from anabranch.engine.jars import Progress, jars, silent
from anabranch.engine.java import java
from anabranch.engine.masked_log import mask_log
from anabranch.engine.profile import DELTA_EXTENSION, is_local, profile
from anabranch.errors import SetupError

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

#: To be set on the session before a query whose checkpoint is in a local folder is started: 30 to 100 ms less per epoch
#: than the default way of writing it (measured, file source, 2 cores). Both write aside and rename; the default is left
#: for other file systems, where a rename over an existing file may be refused.
LOCAL_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}

#: The default stack was seen to overflow in the thread of a streaming query.
STACK = "-Xss4m"

#: Where the JVM of this process logs; a process has at most one JVM.
_log: Path | None = None


def log_file() -> Path | None:
    """Spark's log, also after the JVM died; None if the session was not opened here."""
    return _log


def open_session(
    *, app_name: str, log_folder: Path, settings: Mapping[str, str] | None = None, progress: Progress = silent
) -> SparkSession:
    """The active session as it is, if there is one (notebook, `spark-submit`), else a new one.

    `settings` are Spark's, static ones too, and win over our defaults; lists (jars, extensions, Java options) are
    added to ours; they may refer to secrets. They do not touch a session that was already there. Under `spark-submit`
    its own settings come between ours and `settings`, and the master is the one it was given.
    """
    from pyspark.sql import SparkSession

    if "SPARK_REMOTE" in os.environ or "spark.remote" in (settings or {}):
        raise SetupError(
            "SPARK_REMOTE_UNSUPPORTED",
            "Spark Connect is asked for (SPARK_REMOTE or spark.remote), but a classic session is needed",
            hint="unset it, and set spark.master to run on a cluster",
        )
    session = SparkSession.getActiveSession() or _of_another_thread()
    if session is None and "PYSPARK_GATEWAY_PORT" in os.environ:  # the JVM was started by `spark-submit`
        session = _submitted(app_name, log_folder, settings or {})
    if session is None:
        session = _start(_all_settings(app_name, log_folder, settings or {}, progress), log_folder)
    _check_delta(session)
    return session


def _of_another_thread() -> SparkSession | None:
    """The session of this process, made the one of this thread too: Spark keeps one for each thread."""
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession  # noqa: SLF001
    if session is None or session.sparkContext._jsc is None:  # noqa: SLF001
        return None
    jvm = session.sparkContext._jvm  # noqa: SLF001
    assert jvm is not None
    getattr(jvm, "org.apache.spark.sql.classic.SparkSession").setActiveSession(session._jsparkSession)  # noqa: SLF001
    return session


def _submitted(app_name: str, log_folder: Path, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    SparkContext._ensure_initialized()  # noqa: SLF001  what it was given is known in its JVM
    given = dict(SparkConf().getAll())
    if not _delta_is_loadable(SparkContext._jvm):  # noqa: SLF001
        raise _delta_missing(" that spark-submit started", loadable=False)
    said = given | _revealed({key: text for key, text in settings.items() if key != "spark.master"})
    extensions = dict.fromkeys([DELTA_EXTENSION, *said.get("spark.sql.extensions", "").split(",")])
    name = {"spark.app.name": app_name, "spark.sql.warehouse.dir": str(log_folder.resolve() / "warehouse")}
    all_settings = profile(said, own_jvm=False) | name | said
    all_settings["spark.sql.extensions"] = ",".join(filter(None, extensions))
    _set_environment(given["spark.master"])
    with _signals_kept():
        return SparkSession(SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(all_settings.items()))))


def _all_settings(app_name: str, log_folder: Path, settings: Mapping[str, str], progress: Progress) -> dict[str, str]:
    log = log_folder.resolve() / "spark.log"
    log4j = Path(__file__).with_name("log4j2.properties")
    java_options = [
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        f"-Danabranch.log={log}",
        # Used only if Hive is asked for, which would leave metastore_db and derby.log in the current folder.
        f"-Dderby.system.home={log.parent}",
        STACK,
    ]
    ours = {
        "spark.master": "local[*]",
        "spark.app.name": app_name,
        "spark.sql.warehouse.dir": str(log.parent / "warehouse"),
        **profile(settings, own_jvm=True),
    }
    lists = {
        "spark.jars": (",", [str(jar) for jar in jars(progress)]),
        "spark.sql.extensions": (",", [DELTA_EXTENSION]),
        # Later options win, so the user's come last.
        "spark.driver.extraJavaOptions": (" ", [_quoted(option) for option in java_options]),
    }
    joined = {key: mark.join([*items, *_given(settings, key)]) for key, (mark, items) in lists.items()}
    return ours | dict(settings) | joined


def _given(settings: Mapping[str, str], key: str) -> list[str]:
    return [settings[key]] if settings.get(key) else []


def _quoted(option: str) -> str:
    """Spark splits options at spaces, and knows double quotes and backslashes.

    >>> _quoted("-Xss4m"), _quoted("-Dlog=/my logs/x")
    ('-Xss4m', '"-Dlog=/my logs/x"')
    """
    if shlex.quote(option) == option:
        return option
    return '"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _start(settings: Mapping[str, str], log_folder: Path) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    java()
    _set_environment(settings["spark.master"])
    # What the JVM is started with, every user of the machine can read; only settings of the driver cannot come later.
    early = {key: text for key, text in settings.items() if key.startswith("spark.driver.") or not has_secret(text)}
    conf, first = (SparkConf(loadDefaults=False).setAll(list(_revealed(s).items())) for s in (settings, early))
    gateway = SparkContext._gateway  # noqa: SLF001  the JVM of a session stopped earlier is used again
    log = _open_log(log_folder) if gateway is None else log_file()
    log_from = log.stat().st_size if log else 0
    try:
        with _signals_kept():
            if gateway is None:
                gateway = _launch(first, log)
                mask_log(gateway)
            return SparkSession(SparkContext(conf=conf, gateway=gateway))
    except (PySparkException, Py4JError, OSError) as error:
        failure = _start_failed(error, gateway is not None, log_from)
        if gateway is not None:
            _end(gateway)
        raise failure from None  # the cause asks the JVM, now gone, for its own text


def _revealed(settings: Mapping[str, str]) -> dict[str, str]:
    return {key: reveal(text) for key, text in settings.items()}


def _open_log(log_folder: Path) -> Path:
    global _log
    path = log_folder.resolve() / "spark.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as error:
        raise SetupError(
            "LOG_NOT_WRITABLE",
            f"Spark's log cannot be written to {path}: {error.strerror}",
            hint="make it a folder you may write to, or choose another storage folder",
        ) from error
    _log = path
    return path


def _launch(conf: SparkConf, log: Path | None) -> Any:
    from pyspark.java_gateway import launch_gateway

    assert log is not None
    _quiet_python_side(log)
    with log.open("ab") as file:
        return launch_gateway(conf, {"stdout": file, "stderr": subprocess.STDOUT})  # type: ignore[no-untyped-call]


def _end(gateway: Any) -> None:
    """Let go of a JVM in which no context could be made, so that the next attempt begins with a new one."""
    from pyspark import SparkContext

    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    gateway.close()
    gateway.proc.stdin.close()  # what the JVM waits for
    gateway.proc.wait()


def _set_environment(master: str) -> None:
    if is_local({"spark.master": master}):
        os.environ["PYSPARK_PYTHON"] = sys.executable  # workers of another Python could not read what we send
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # read by the JVM before any setting
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _quiet_python_side(log: Path) -> None:
    """Pyspark prints errors that carry a query context to stderr, beside raising them: into the log with these."""
    from pyspark.logger import PySparkLogger

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logger = PySparkLogger.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.addHandler(logging.FileHandler(log, delay=True))


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Spark takes SIGINT for itself, to cancel jobs over a connection that may be in use: whoever had it keeps it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if handler is not None:
            signal.signal(signal.SIGINT, handler)


def _start_failed(error: Exception, started: bool, log_from: int) -> SetupError:
    """If the JVM never came up, only its log (from `log_from` on) knows why; later the exception does."""
    log = _log.read_bytes()[log_from:].decode("utf-8", "replace").splitlines() if _log and _log.exists() else []
    said = str(error).splitlines() if started else log
    reasons = [line.strip() for line in said if re.search(r"Error|Exception|[Cc]ould not|too small|invalid", line)]
    return SetupError(
        "SPARK_START_FAILED",
        f"Spark did not start: {(reasons or said or [repr(error)])[0]}",
        hint=f"the reason is in {_log}; `anabranch doctor` checks Java, the jars and the settings",
        details={"log": str(_log), "last_lines": log[-20:]},
    )


def _check_delta(session: SparkSession) -> None:
    extensions = session.conf.get("spark.sql.extensions", "") or ""
    loadable = _delta_is_loadable(session.sparkContext._jvm)  # noqa: SLF001
    if DELTA_EXTENSION not in extensions or not loadable:
        raise _delta_missing(" session that is already there", loadable=loadable)


def _delta_is_loadable(jvm: Any) -> bool:
    return bool(getattr(jvm, "org.apache.spark.util.Utils").classIsLoadable(DELTA_EXTENSION))


def _delta_missing(which: str, *, loadable: bool) -> SetupError:
    return SetupError(
        "DELTA_MISSING",
        f"the Spark{which} cannot write Delta tables"
        + ("" if loadable else ": the jars of Delta are not on its class path"),
        hint="stop it and let Anabranch open its own, or start it with the jars of Delta and "
        f"spark.sql.extensions={DELTA_EXTENSION}; for spark-submit, `python -m anabranch.job --print` prints the whole "
        "command",
    )
