"""The files a project's `libraries` name: a file, or a folder with everything in it (`folder/**`)."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

from anabranch.core.where import Where
from anabranch.errors import ProjectError, did_you_mean

DEFAULT_FOLDER = "transformations"
DEFAULT_FILE = "pipeline.py"
#: Endings of files that declare things.
KINDS = (".py", ".sql")


def library_files(
    root: Path, patterns: list[tuple[str, Where]] | None, spec: Where
) -> tuple[tuple[Path, ...], list[ProjectError]]:
    """The files that `patterns` name, each once, in the order of the patterns and sorted within one.

    `None` stands for the default: `pipeline.py` and what is under `transformations`, whichever is there.
    """
    problems: list[ProjectError] = []
    files: dict[Path, None] = {}
    if patterns is None:
        patterns = [(pattern, spec) for pattern in _default(root)]
    if not patterns:
        hint = f"write {DEFAULT_FILE} or {DEFAULT_FOLDER}/, or name files under `libraries`"
        problems.append(ProjectError("PROJECT_NO_FILES", "no library files", where=spec, hint=hint))
    for pattern, where in patterns:
        try:
            found = _matching(root, pattern)
        except ValueError as error:
            hint = 'name one file, or a folder with everything in it as "folder/**"'
            problems.append(ProjectError("PROJECT_BAD_GLOB", str(error), where=where, hint=hint))
            continue
        if not found:
            problems.append(_nothing(root, pattern, where))
        problems += _wrong_kinds(root, found, where)
        files.update((path, None) for path in found if path.suffix in KINDS)
    return tuple(files), problems


def _default(root: Path) -> list[str]:
    return [
        *([DEFAULT_FILE] if (root / DEFAULT_FILE).is_file() else []),
        *([f"{DEFAULT_FOLDER}/**"] if (root / DEFAULT_FOLDER).is_dir() else []),
    ]


def _matching(root: Path, pattern: str) -> list[Path]:
    if not glob.has_magic(pattern):
        path = root / pattern
        if path.is_dir():
            raise ValueError(f'"{pattern}" is a folder')
        return [path.resolve()] if path.is_file() else []
    folder = pattern.removesuffix("/**")
    if folder == pattern or glob.has_magic(folder):
        raise ValueError(f'"{pattern}" is not a pattern that a library may have')
    return sorted(path.resolve() for path in (root / folder).rglob("*") if path.is_file() and _is_meant(root, path))


def _is_meant(root: Path, path: Path) -> bool:
    parts = path.parts[len(root.parts) :]
    return not any(part == "__pycache__" or (part.startswith(".") and part != "..") for part in parts)


def _nothing(root: Path, pattern: str, where: Where) -> ProjectError:
    near = did_you_mean(pattern, _names(root, pattern.endswith("/**")))
    text = f'"{pattern}" matches no file in {root}'
    return ProjectError("PROJECT_NO_FILES", text, where=where, hint=near or "correct the path, or create the file")


def _names(root: Path, folders: bool) -> Iterator[str]:
    for path in root.iterdir():
        if path.is_dir() and folders:
            yield f"{path.name}/**"
        elif path.is_file() and not folders:
            yield path.name


def _wrong_kinds(root: Path, found: Iterable[Path], where: Where) -> Iterator[ProjectError]:
    for path in found:
        name = path.relative_to(root) if path.is_relative_to(root) else path
        if path.suffix in KINDS:
            continue
        text = f"{name} is neither a .py nor a .sql file"
        hint = "move it out of the libraries, or name files one by one"
        yield ProjectError("PROJECT_FILE_KIND", text, where=where, hint=hint)
