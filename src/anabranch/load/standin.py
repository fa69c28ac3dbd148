"""Run files that import pyspark, without pyspark.

Checking a project needs its declarations, not a JVM. While `standing_in` is active, `import pyspark` gives a tree of
stand-in modules. What is taken from them can be called, decorated with, derived from, indexed, added and compared, and
gives another stand-in. Only where a real value is needed (a number, a truth value, text, something to loop over) does
it give up, with NeedsSpark.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NoReturn

_MAX_PATH = 120

#: The project's own Spark settings, the only values of Spark that can be known without it.
known_settings: ContextVar[Mapping[str, str] | None] = ContextVar("anabranch_known_settings", default=None)


class NeedsSpark(BaseException):
    """A real value was needed. Not an Exception, so that `except Exception` in a user's file does not hide it."""


class StandInError(Exception):
    """What every exception of pyspark derives from: exceptions have to be classes, they stand in `except`."""


class StandInBase:
    """What a class that derives from something of pyspark derives from instead."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __init_subclass__(cls, **_: Any) -> None:
        super().__init_subclass__()

    def __class_getitem__(cls, _: Any) -> Any:
        return cls

    def __getattr__(self, name: str) -> StandIn:
        if _is_dunder(name):
            raise AttributeError(name)
        return StandIn(f"{type(self).__name__}.{name}")


class StandIn:
    """Stands for anything taken from pyspark; `path` says what, for messages."""

    _path: str

    def __init__(self, path: str) -> None:
        self.__dict__["_path"] = path[-_MAX_PATH:]
        self.__dict__["__name__"] = path.rpartition(".")[2]

    def __getattr__(self, name: str) -> StandIn:
        if _is_dunder(name) or name == "_path":  # the latter only while being copied
            raise AttributeError(name)
        return StandIn(f"{self._path}.{name}")

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._path.endswith(".conf.get"):
            return _setting(self._path, *arguments, **named)
        return StandIn(f"{self._path}()")

    def __mro_entries__(self, _: tuple[Any, ...]) -> tuple[type, ...]:
        return (_base_class(self._path),)

    def __instancecheck__(self, instance: Any) -> bool:
        if isinstance(instance, StandIn):
            _give_up(self)
        return isinstance(instance, _base_class(self._path))

    def __subclasscheck__(self, subclass: Any) -> bool:
        return isinstance(subclass, type) and _base_class(self._path) in subclass.__mro__

    def __repr__(self) -> str:
        return f"<StandIn {self._path}>"

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __setitem__(self, _: Any, __: Any) -> None:
        return None

    def __getitem__(self, _: Any) -> StandIn:
        return StandIn(f"{self._path}[]")

    def __hash__(self) -> int:
        return hash(self._path) if _is_plain(self) else id(self)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _give_up(self: StandIn, *_: Any) -> NoReturn:
    raise NeedsSpark(f"the value of {self._path} is not known without Spark")


def _operation(self: StandIn, *_: Any) -> StandIn:
    return StandIn(f"({self._path} ...)")


def _equals(self: StandIn, other: Any) -> Any:
    """Names such as classes are compared, since `typing` does so; results of calls, such as columns, are combined."""
    if not _is_plain(self) or other is None or isinstance(other, str | int | float | list | tuple):
        return _operation(self)
    return _is_plain(other) and repr(self) == repr(other)


def _differs(self: StandIn, other: Any) -> Any:
    equal = _equals(self, other)
    return not equal if isinstance(equal, bool) else equal


def _is_plain(value: Any) -> bool:
    return type(value) is StandIn and "(" not in repr(value)


_ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"]
_RESULTS = [
    *_ARITHMETIC,
    *(f"r{name}" for name in _ARITHMETIC),
    *("neg", "pos", "invert", "abs", "lt", "le", "gt", "ge"),
]
_REAL_VALUES = [
    *("bool", "int", "float", "complex", "index", "round", "trunc", "str", "format", "bytes", "fspath"),
    *("len", "iter", "next", "contains", "await"),
]
for _name in _RESULTS:
    setattr(StandIn, f"__{_name}__", _operation)
for _name, _compare in (("eq", _equals), ("ne", _differs)):
    setattr(StandIn, f"__{_name}__", _compare)
for _name in _REAL_VALUES:
    setattr(StandIn, f"__{_name}__", _give_up)


@functools.lru_cache(maxsize=1024)
def _base_class(path: str) -> type:
    """One class per thing, so that a user's class can derive from several of them."""
    return type(path.rpartition(".")[2], (StandInBase,), {})


@functools.lru_cache(maxsize=256)
def exception_class(path: str) -> type[Exception]:
    """One class per exception."""
    module, _, name = path.rpartition(".")
    return type(name, (StandInError,), {"__module__": module})


def value_of(path: str) -> Any:
    """What stands for the name at `path`."""
    return exception_class(path) if path.endswith(("Exception", "Error")) else StandIn(path)


def _setting(path: str, key: Any = None, *default: Any, **named: Any) -> Any:
    """`spark.conf.get`: what the project file sets is known; of other keys only those that Spark never sets itself."""
    key = named.get("key", key)
    settings = known_settings.get() or {}
    if key in settings:
        return settings[key]
    defaults = [*default, *(value for name, value in named.items() if name == "default")]
    if defaults and isinstance(key, str) and not key.startswith("spark."):
        return defaults[0]
    return StandIn(f"{path}()")


def is_standing_in(value: Any) -> bool:
    """Whether a value in some module came from a stand-in."""
    if isinstance(value, type):
        return StandInBase in value.__mro__ or StandInError in value.__mro__
    return type(value) in (StandIn, StandInModule)


class StandInModule(ModuleType):
    """A module of pyspark; `names` gives what `import *` takes from it."""

    def __init__(self, name: str, names: Callable[[], list[str]]) -> None:
        super().__init__(name)
        self.__dict__["__path__"] = []
        self.__dict__["_names"] = names

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return self.__dict__["_names"]()
        if _is_dunder(name):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = value_of(f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value
