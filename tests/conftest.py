"""What the tests share: one real Postgres for the session, a schema of its own for every test that asks."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

sys.path.insert(0, str(Path(__file__).parent))  # what several folders of tests share stands beside this file
from spark_classes import ARCHIVE, QUICK, SHARED

# For all JVMs, and for those of Spark.
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK)
if ARCHIVE.exists():
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHARED)

# Examples that failed once are kept in the repository, and tried first ever after.
# None fails because the machine is slow.
settings.register_profile(
    "kept",
    database=DirectoryBasedExampleDatabase(Path(__file__).parent / "examples"),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("kept")


@pytest.fixture(scope="session", autouse=True)
def patient_history() -> None:
    """The end of a run waits until its last events are written: tests look for them, on any machine."""
    from anabranch.store import history_writer

    history_writer._LAST = 120.0


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The folder of a running server's socket."""
    sys.path.insert(0, str(Path(__file__).parent / "servers"))
    from postgres_server import postgres

    with postgres() as folder:
        yield folder


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
