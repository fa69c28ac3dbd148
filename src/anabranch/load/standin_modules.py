"""Put the stand-in modules where `import pyspark` finds them, and take them away again without a trace."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from anabranch.load.standin import NeedsSpark, StandInModule, is_standing_in, known_settings

PACKAGE = "pyspark"
#: What a file that asks for Spark's version is told where Spark is not installed.
_SUPPORTED = "4.1"


@contextmanager
def standing_in(pipelines: ModuleType, settings: Mapping[str, str]) -> Iterator[None]:
    """Inside, every module of pyspark is a stand-in and `pyspark.pipelines` is `pipelines`.

    Real modules that were loaded are put back afterwards; other modules that were imported in the meantime and hold on
    to a stand-in are forgotten. This changes the whole process: nothing else may import pyspark meanwhile.
    """
    before = sys.modules.copy()  # in one step: other threads may import something else meanwhile, here and below
    for name in [name for name in before if _is_pyspark(name)]:
        del sys.modules[name]
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    sys.modules[f"{PACKAGE}.pipelines"] = sys.modules[f"{PACKAGE}.pipelines.api"] = pipelines
    token = known_settings.set(settings)
    try:
        yield
    finally:
        known_settings.reset(token)
        sys.meta_path.remove(finder)
        found = sys.modules.copy()
        new = {name: module for name, module in found.items() if name not in before}
        for name in {*_touched(new), *filter(_is_pyspark, found)}:
            sys.modules.pop(name, None)
        sys.modules.update((name, module) for name, module in before.items() if _is_pyspark(name))


class _Finder(MetaPathFinder, Loader):
    """Serves pyspark and all below it that really exists, so that a misspelt module is still found out.

    Where pyspark is not installed, that cannot be known, and every module below it is served.
    """

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not _is_pyspark(name) or not _exists(name):
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = StandInModule(spec.name, functools.partial(_star_names, spec.name))
        if spec.name == PACKAGE:
            module.__dict__["__version__"] = metadata.version(PACKAGE) if _is_installed() else _SUPPORTED
            module.__dict__["pipelines"] = sys.modules[f"{PACKAGE}.pipelines"]
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run: attributes appear when they are asked for."""


def _is_pyspark(name: str) -> bool:
    return name == PACKAGE or name.startswith(f"{PACKAGE}.")


def _source(name: str) -> Path | None:
    """The file of a real module of pyspark; the package is looked up, not imported."""
    spec = PathFinder.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent.joinpath(*name.split(".")[1:])
    files = [path / "__init__.py", path.with_suffix(".py") if path.suffix == "" else path]
    return next((file for file in files if file.is_file()), None)


def _exists(name: str) -> bool:
    return _source(name) is not None or not _is_installed()


def _is_installed() -> bool:
    return _source(PACKAGE) is not None


@functools.lru_cache(maxsize=32)
def _star_names(name: str) -> list[str]:
    """What `from name import *` takes: the list `__all__` of the real file, or else every public name in it."""
    source = _source(name)
    if source is None and not _is_installed():
        raise NeedsSpark(f"what `from {name} import *` takes is not known: pyspark is not installed")
    if source is None:
        return []
    public: set[str] = set()
    for node in ast.parse(source.read_bytes()).body:
        if isinstance(node, ast.Assign) and _assigns_all(node):
            texts = (item.value for item in ast.walk(node.value) if isinstance(item, ast.Constant))
            return [text for text in texts if isinstance(text, str)]
        public.update(_bound(node))
    return sorted(name for name in public if not name.startswith("_"))


def _assigns_all(node: ast.Assign) -> bool:
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets)


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names if alias.name != "*")
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _touched(new: Mapping[str, Any]) -> set[str]:
    """The modules among `new` that hold on to a stand-in, directly or through another one, with their packages."""
    tops: set[str] = set()
    held = {name: _held(module) for name, module in new.items() if not _is_pyspark(name)}
    growing = True
    while growing:
        found = {_top(name) for name, values in held.items() if any(_taints(value, tops) for value in values)}
        growing = not found <= tops
        tops |= found
    return {name for name in held if _top(name) in tops}


def _held(module: Any) -> list[Any]:
    return list(vars(module).copy().values()) if isinstance(module, ModuleType) else []


def _taints(value: Any, tops: set[str]) -> bool:
    if is_standing_in(value):
        return True
    name = value.__name__ if isinstance(value, ModuleType) else getattr(type(value), "__module__", None)
    owner = getattr(value, "__module__", None) if callable(value) else name
    return any(isinstance(text, str) and _top(text) in tops for text in (name, owner))


def _top(name: str) -> str:
    return name.partition(".")[0]
