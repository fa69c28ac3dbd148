"""What in the source of a file only Databricks has: its helpers, its paths, its notebook lines, its settings.

Found by reading, not by running. `Verdict.DIFFERS` is for what has no effect or another one here and still runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from anabranch.core.where import Where
from anabranch.errors import ProjectError


class Verdict(StrEnum):
    """Whether something runs."""

    RUNS = "runs"
    DIFFERS = "differs"
    NOT_SUPPORTED = "not supported"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in a project's files, and what becomes of it here; `hint` says what to do."""

    verdict: Verdict
    what: str
    where: Where
    why: str = ""
    hint: str | None = None
    code: str | None = None  # of the error that a run would end with


#: Names that a notebook has without importing them, with the way out. Also injected, so that a file is looked at to its
#: end.
NOTEBOOK_NAMES = {
    "dbutils": "read a setting with spark.conf.get, a secret from the environment, files with Spark or pathlib",
    "display": "remove it; `anabranch show` prints rows of a table",
    "displayHTML": "remove it",
    "getArgument": "read a setting with spark.conf.get; the project file sets it under `configuration`",
    "sqlContext": "use spark",
}
_DBUTILS = {
    "widgets": "set the value under `configuration` in the project file and read it with spark.conf.get",
    "secrets": "read the secret from an environment variable: os.environ",
    "fs": "use pathlib for local files, Spark for others",
    "notebook": "put the code in a Python file beside this one and import it",
    "library": "install the package in the environment",
}
#: Options of Auto Loader that have a counterpart here; see `anabranch.engine.cloud_files`.
CLOUD_FILES_KNOWN = frozenset(
    [
        *("cloudfiles.format", "cloudfiles.schemalocation", "cloudfiles.infercolumntypes", "cloudfiles.schemahints"),
        *("cloudfiles.maxfilespertrigger", "cloudfiles.maxbytespertrigger", "cloudfiles.maxfileage"),
        *("cloudfiles.cleansource", "cloudfiles.cleansource.movedestination", "cloudfiles.includeexistingfiles"),
    ]
)
_MAGIC = re.compile(r"^\s*(?:(?:#|--) MAGIC )?%(\w+)")
_MAGICS = {
    "run": (Verdict.NOT_SUPPORTED, "import the other file instead"),
    "sql": (Verdict.NOT_SUPPORTED, "put the statement in a .sql file of the project"),
    "pip": (Verdict.NOT_SUPPORTED, "install the package in the environment, and remove the line"),
    "python": (Verdict.DIFFERS, "remove the line and what marks the code after it as a comment"),
}
_PLACES = re.compile(r"^(dbfs:/|/dbfs/|/Volumes/|/mnt/|/Workspace/)")
_SETTING = re.compile(r"^(spark\.databricks\.|pipelines\.)[\w.]+$")


def findings_in(source: str, file: str) -> list[Finding]:
    """What only Databricks has in a Python or SQL file."""
    found = [*_magics(source, file)]
    if file.endswith(".py"):
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            return found  # loading the file reports it
        found += _in_tree(tree, file)
    return sorted(found, key=lambda each: each.where)


def ignored_cloud_options(files: Iterable[Path]) -> list[ProjectError]:
    """A warning for every option of Auto Loader in the files that has no effect."""
    found = (f for file in files if file.suffix == ".py" for f in findings_in(_read(file), str(file)))
    hint = "leave it out if the project runs here only"
    return [
        ProjectError("SETTING_IGNORED", f"ignored: {f.what}", where=f.where, hint=hint)
        for f in found
        if f.what.lower().startswith("cloudfiles.")
    ]


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace")


def _magics(source: str, file: str) -> Iterator[Finding]:
    is_notebook = source.startswith(("# Databricks notebook source", "-- Databricks notebook source"))
    for number, line in enumerate(source.splitlines(), 1):
        match = _MAGIC.match(line)
        commented = line.startswith(("# MAGIC", "-- MAGIC"))
        if not match or match[1] == "md" or not (is_notebook or commented or line.startswith("%")):
            continue
        verdict, hint = _MAGICS.get(match[1], (Verdict.NOT_SUPPORTED, "remove the line, or do the same in Python"))
        why = "a line of a notebook is a comment here and does nothing" if commented else "it is not Python"
        yield Finding(verdict, f"%{match[1]}", Where(file, number), why, hint)


def _in_tree(tree: ast.AST, file: str) -> Iterator[Finding]:
    bound = {name for node in ast.walk(tree) for name in _names_bound(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_name(node.value, "dbutils") and "dbutils" not in bound:
            hint = _DBUTILS.get(node.attr, NOTEBOOK_NAMES["dbutils"])
            yield _of_notebook(f"dbutils.{node.attr}", node, file, hint)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in NOTEBOOK_NAMES and name not in bound:
                yield _of_notebook(name, node, file, NOTEBOOK_NAMES[name])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _in_text(node.value, Where(file, node.lineno, node.col_offset + 1))


def _of_notebook(what: str, node: ast.expr, file: str, hint: str) -> Finding:
    where = Where(file, node.lineno, node.col_offset + 1)
    return Finding(Verdict.NOT_SUPPORTED, what, where, "only notebooks and jobs of Databricks have it", hint)


def _in_text(text: str, where: Where) -> Iterator[Finding]:
    lower = text.lower()
    if lower == "cloudfiles":
        why = (
            "Spark's own file source lists the folder; the schema is inferred once and kept, columns that come later "
            "are not read, and there is no column _rescued_data"
        )
        yield Finding(Verdict.DIFFERS, "cloudFiles", where, why)
    elif lower.startswith("cloudfiles.") and " " not in text and lower not in CLOUD_FILES_KNOWN:
        yield Finding(Verdict.DIFFERS, text, where, "the option is ignored: Spark's file source has no such thing")
    elif _SETTING.match(text):
        yield Finding(Verdict.DIFFERS, text, where, "a setting of Databricks has no effect here")
    elif _PLACES.match(text):
        hint = "mount the folder under that path, or take the path from spark.conf.get"
        yield Finding(Verdict.DIFFERS, text, where, "a path that Databricks mounts", hint)


def _names_bound(node: ast.AST) -> Iterator[str]:
    """Names that a file defines itself, whatever the scope: a project with its own `display` has one."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
