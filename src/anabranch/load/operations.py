"""Operations on possible values; nothing here runs the user's code."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from enum import Enum, EnumType
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from anabranch.load.scopes import Values

MOST_VALUES = 256
_COLLECTIONS = (list, tuple, set, frozenset, dict, range, str)


def items(value: Any) -> list[Any]:
    if type(value) not in _COLLECTIONS:
        raise TypeError(type(value).__name__)
    return list(itertools.islice(value, MOST_VALUES + 1))


def each(values: Values) -> Values:
    """The items of collections, all of them."""
    lists = applied(items, [values])
    return None if lists is None else tuple(itertools.chain.from_iterable(lists))


def union(found: list[Values]) -> Values:
    known = [values for values in found if values is not None]
    return tuple(itertools.chain.from_iterable(known)) if len(known) == len(found) else None


def applied(operation: Callable[..., Any], arguments: list[Values]) -> Values:
    """`operation` on the arguments, for each of their values; not known as soon as one fails.

    If two arguments have several values each, it is not known which of them go together.
    """
    known = [values for values in arguments if values is not None]
    if len(known) != len(arguments) or sum(len(values) > 1 for values in known) > 1:
        return None
    try:
        return tuple(operation(*chosen) for chosen in itertools.islice(itertools.product(*known), MOST_VALUES + 1))
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return None


def plain(value: Any) -> Any:
    if not isinstance(value, str | int | float):
        raise TypeError(type(value).__name__)
    return value


def is_text(values: Values) -> bool:
    return bool(values) and all(isinstance(value, str) for value in values or ())


def simple(value: Any) -> Any:
    if type(value) not in (*_COLLECTIONS, int, float, bool) or (type(value) is range and len(value) > MOST_VALUES):
        raise TypeError(type(value).__name__)
    return value


def member(owner: Any, name: str) -> Any:
    """An attribute as it is stored; nothing that would run code, such as a property, is looked at."""
    if isinstance(owner, EnumType) and name in owner.__members__:
        return owner.__members__[name]
    if isinstance(owner, Enum) and name in ("value", "name"):
        return getattr(owner, name)
    found = vars(owner)[name] if isinstance(owner, ModuleType) else inspect.getattr_static(owner, name)
    if isinstance(found, MemberDescriptorType) and not isinstance(owner, type):  # a slot
        return found.__get__(owner)
    if isinstance(found, FunctionType) and not isinstance(owner, type | ModuleType):
        return MethodType(found, owner)
    if hasattr(type(found), "__get__") and not isinstance(found, FunctionType | type):
        raise TypeError(name)
    return found


def materialised(value: Any) -> Any:
    """Iterators as lists, so that they can be looked at more than once."""
    if isinstance(value, enumerate | zip | reversed) or type(value).__name__ in (
        "dict_items",
        "dict_keys",
        "dict_values",
    ):
        return list(value)
    return value
