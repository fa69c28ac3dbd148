"""`anabranch doctor`: whether this machine, and the project if there is one, can run."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

import typer

from anabranch.cli.output import Table
from anabranch.cli.verb import Invocation
from anabranch.core.secrets import has_secret
from anabranch.errors import AnabranchError, ProjectErrors

LIBRARIES = ("pyspark", "deltalake", "pyarrow", "duckdb", "sqlalchemy", "pydantic", "typer")
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at; `state` is `ok`, `warn` or `fail`."""

    check: str
    state: str
    found: str
    hint: str | None = None


def doctor(at: Invocation) -> None:
    """Look at Java, the jars, room, memory, libraries and the project's folders."""
    findings = [
        _python(),
        _java(),
        _jars(),
        *_machine(),
        *_libraries(),
        *_formats(),
        *_project(at.project),
    ]
    failed = any(f.state == "fail" for f in findings)
    hints = [f"hint ({f.check}): {f.hint}" for f in findings if f.hint]
    rows = [{"check": f.check, "state": f.state, "found": f.found} for f in findings]
    at.out.show(
        {"ok": not failed, "checks": [asdict(f) for f in findings]}, Table(rows), *(["", *hints] if hints else [])
    )
    if failed:
        raise typer.Exit(2)


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", "ok", f"{version} ({sys.executable})")


def _java() -> Finding:
    from anabranch.engine.java import java

    try:
        found = java()
    except AnabranchError as error:
        return Finding("java", "fail", error.message, error.hint)
    return Finding("java", "ok", f"{found.version} ({found.path})")


def _jars() -> Finding:
    from anabranch.engine import jars

    wanted, folder = jars.locked(), jars.cache_folder()
    faults = jars.faults(wanted, folder)
    damaged = [f for f in faults if not f.missing]
    if damaged:
        return Finding("jars", "warn", str(damaged[0]), "the next run fetches it again; needs the network")
    if faults:
        megabytes = sum(f.jar.size for f in faults) / 1e6
        hint = f"the next run fetches {megabytes:.0f} MB once; needs the network"
        return Finding("jars", "warn", f"{len(faults)} of {len(wanted)} not in {folder} yet", hint)
    return Finding("jars", "ok", f"{len(wanted)} verified in {folder}")


def _machine() -> Iterator[Finding]:
    free = shutil.disk_usage(Path.cwd()).free
    hint = f"free some room on the disk of {Path.cwd()}"
    state = "fail" if free < GIB / 10 else "warn" if free < GIB else "ok"
    yield Finding("disk", state, f"{free / GIB:.1f} GiB free here", hint if state != "ok" else None)
    memory = available_memory()
    low = memory < 2 * GIB
    yield Finding(
        "memory",
        "warn" if low else "ok",
        f"{memory / GIB:.1f} GiB available",
        "close other programs: Spark and its workers want 2 GiB" if low else None,
    )
    yield Finding(
        "cores", "ok", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    )


def available_memory() -> int:
    """Bytes that can be had without swapping, within the limit of the container if there is one."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
        limits.append(int(fields["MemAvailable"].split()[0]) * 1024)
    container, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if container.exists() and used.exists() and (limit := container.read_text().strip()) != "max":
        limits.append(int(limit) - int(used.read_text()))
    return max(0, min(limits))


def _libraries() -> Iterator[Finding]:
    for name in LIBRARIES:
        try:
            yield Finding(name, "ok", metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, "fail", "not installed", "install anabranch again, with its dependencies")


def _formats() -> Iterator[Finding]:
    """The formats of other packages."""
    from anabranch.core.formats import OURS, plugins

    for plugin in plugins():
        check, found = f"format {plugin.name}", f"{plugin.package} ({plugin.entry})"
        if plugin.name in OURS:
            yield Finding(check, "warn", f"{found} is not used: Anabranch has a format of this name", "rename it")
        elif plugin.fault:
            hint = "mend or uninstall it; outputs of other formats are not touched by this"
            yield Finding(check, "warn", f"{found} does not work: {plugin.fault}", hint)
        else:
            yield Finding(check, "ok", found)


def _project(path: Path) -> Iterator[Finding]:
    """Nothing when there is no project here and none was named."""
    from anabranch.load.project import examine_project

    examined = examine_project(path)
    if examined.problems and examined.problems[0].code == "PROJECT_NOT_FOUND" and path == Path():
        return
    if examined.problems or examined.project is None:
        yield Finding("project", "fail", ProjectErrors(examined.problems).message, "`anabranch check` shows them")
    if examined.project is not None:
        yield Finding("project", "ok", f"{examined.project.name} ({examined.project.spec_file})")
        yield _writable("storage", Path(examined.project.storage))
        if "://" not in examined.project.ledger and not has_secret(examined.project.ledger):
            yield _writable("ledger", Path(examined.project.ledger))


def _writable(check: str, path: Path) -> Finding:
    """Whether `path` may be written, or made in the nearest folder above it that is there."""
    there = next(p for p in (path, *path.parents) if p.exists())
    hint = f"allow it, or name another {check} in the project file"
    wants_file = check == "ledger" and there == path
    if there.is_dir() == wants_file:
        return Finding(check, "fail", f"{there} is {'a folder' if there.is_dir() else 'a file'}", hint)
    if not os.access(there, os.W_OK):
        return Finding(check, "fail", f"{there} may not be written", hint)
    return Finding(check, "ok", str(path) if there == path else f"{path} (made by the first run)")
