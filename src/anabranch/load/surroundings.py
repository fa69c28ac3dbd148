"""The world in which a project's files run: their folder and helper modules, and no trace of them afterwards."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.load.lakeflow import lakeflow_names

#: The package under which library files are modules while they are loaded.
PACKAGE = "anabranch_project"

_INSTALLED = ("site-packages", "dist-packages")


@dataclass(slots=True)
class Surroundings:
    """Runs each library file once, also if another file imports it."""

    root: Path
    files: tuple[Path, ...]
    injected: Mapping[str, Any]
    modules: dict[Path, ModuleType] = field(default_factory=dict)

    def run(self, file: Path) -> ModuleType:
        """Run `file` unless it has been run; raises what its code raises."""
        return self.modules[file] if file in self.modules else self.run_as(file, self.new_module(file))

    def run_as(self, file: Path, module: ModuleType) -> ModuleType:
        code = compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        vars(module).update(self.injected)
        self.modules[file] = module  # before it runs: files may import each other
        sys.modules[module.__name__] = module  # dataclasses look up the module of a class there
        try:
            exec(code, vars(module))
        except BaseException:
            del self.modules[file], sys.modules[module.__name__]
            raise
        return module

    def new_module(self, file: Path) -> ModuleType:
        """A module for `file`; its name tells files of the same name apart, and from everything installed."""
        relative = file.relative_to(self.root) if file.is_relative_to(self.root) else Path(*file.parts[1:])
        module = ModuleType(".".join([PACKAGE, *relative.with_suffix("").parts]))
        module.__file__, module.__package__ = str(file), ""
        return module

    def is_ours(self, filename: str) -> bool:
        """Whether a file belongs to the project, and not to what is installed, even if that is in the same folder."""
        path = Path(filename)
        inside = [path.relative_to(folder).parts for folder in self.folders if path.is_relative_to(folder)]
        return bool(inside) and not any(part in _INSTALLED for parts in inside for part in parts)

    @property
    def folders(self) -> list[Path]:
        """Where helper modules are looked for: beside each file, and in the project's folder."""
        return list(dict.fromkeys([*(file.parent for file in self.files), self.root]))


@contextmanager
def surroundings(root: Path, files: Sequence[Path], injected: Mapping[str, Any]) -> Iterator[Surroundings]:
    """Inside, the working folder is `root` and modules beside the files can be imported.

    `dlt` can be imported, and `pyspark.pipelines` has the names that Databricks adds to it.

    Afterwards the modules of the project are forgotten: a second load sees changed files, two projects may have helpers
    of the same name, and Spark sends functions of helpers to its workers by value, since these cannot import them.
    """
    around = Surroundings(root, tuple(files), injected)
    finder = _LibraryFinder(around)
    folder, path, no_bytecode = Path.cwd(), list(sys.path), sys.dont_write_bytecode
    set_aside = {name: sys.modules.pop(name) for name in _names_in_the_way(around)}
    before = sys.modules.copy()
    sys.modules[PACKAGE] = ModuleType(PACKAGE)
    names = ExitStack()
    names.enter_context(lakeflow_names(own_dlt=_has_module("dlt", around)))
    importlib.invalidate_caches()
    sys.meta_path.insert(0, finder)
    sys.path[:0] = [str(folder) for folder in around.folders]
    sys.dont_write_bytecode = True  # no __pycache__ in the user's folders
    os.chdir(root)
    try:
        yield around
    finally:
        os.chdir(folder)
        sys.dont_write_bytecode = no_bytecode
        sys.path[:] = path
        sys.meta_path.remove(finder)
        del sys.modules[PACKAGE]
        names.close()
        for name, module in sys.modules.copy().items():  # other threads may import meanwhile
            if name not in before and _belongs(module, around):
                sys.modules.pop(name, None)
        sys.modules.update(set_aside)


class _LibraryFinder(MetaPathFinder, Loader):
    """Imports of a library file give the module that was, or is now, run for it: its declarations are made once."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path)
        origin = Path(found.origin).resolve() if found and found.origin and found.has_location else None
        return spec_from_file_location(name, origin, loader=self) if origin in self._around.files else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        file = Path(spec.origin or "")
        return self._around.modules.get(file) or self._around.new_module(file)

    def exec_module(self, module: ModuleType) -> None:
        file = Path((module.__spec__ and module.__spec__.origin) or "")
        if file not in self._around.modules:
            self._around.run_as(file, module)


def _belongs(module: Any, around: Surroundings) -> bool:
    places = [getattr(module, "__file__", None), *_folders_of(module)]
    return any(isinstance(place, str) and around.is_ours(place) for place in places)


def _folders_of(module: Any) -> list[str]:
    try:
        return list(getattr(module, "__path__", []))
    except (TypeError, KeyError):  # a namespace package whose parent has been forgotten
        return []


def _has_module(name: str, around: Surroundings) -> bool:
    return any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for folder in around.folders)


def _names_in_the_way(around: Surroundings) -> list[str]:
    """Modules that were imported from elsewhere and have the name of one of the project's own."""
    own = {
        path.stem if path.suffix == ".py" else path.name
        for folder in around.folders
        if folder.is_dir()
        for path in folder.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    own -= sys.stdlib_module_names | {"anabranch", "pyspark", "__main__", "__init__"}
    loaded = [(name, module) for name, module in sys.modules.copy().items() if name.partition(".")[0] in own]
    return [name for name, module in loaded if not _belongs(module, around)]
