"""What the files of a project import to take part in its zones.

from anabranch.zones import register_zone_transformer

@register_zone_transformer
def with_volume(df):
    return df.withColumn("volume", df.length * df.width * df.height)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from anabranch.errors import ProjectError
from anabranch.load.registry import current_registry
from anabranch.load.source import calling_place, definition_of
from anabranch.load.zones_transformers import BUILT_IN, registered

__all__ = ["register_zone_transformer"]

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def register_zone_transformer(function: Function, /) -> Function: ...
@overload
def register_zone_transformer(name: str | None = None, /) -> Callable[[Function], Function]: ...
def register_zone_transformer(name: Any = None, /) -> Any:
    """Let the project file name a function of `(df, **arguments) -> DataFrame` under `transformers`.

    It is called by its own name, or by the one given. A parameter `entity` or `zone` gets the name of the entity or of
    the zone that it works for. The function itself is returned, so it can be called and tested alone.

    >>> @register_zone_transformer
    ... def nothing(df):
    ...     return df
    >>> nothing("rows")
    'rows'
    """
    where = calling_place()

    def register(function: Function) -> Function:
        registry = current_registry()
        called = name if isinstance(name, str) else function.__name__
        if registry is None:
            return function
        place = definition_of(function) or where
        other = registry.transformers.get(called)
        if other is not None and other.where != place:
            text = f'there is a transformer "{called}" already, at {other.where}'
            registry.report(ProjectError("TRANSFORMER_TWICE", text, where=place, hint="give one of them another name"))
        elif called in BUILT_IN:
            text = f'"{called}" is the name of a transformer that is always there'
            registry.report(ProjectError("TRANSFORMER_TWICE", text, where=place, hint="give it another name"))
        else:
            registry.transformers[called] = registered(called, function, place)
        return function

    return register if name is None or isinstance(name, str) else register(name)
