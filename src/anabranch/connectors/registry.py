"""Open the sink of an output, or read a version of one, by the name of its format."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.connectors.contract import SinkSpec
from anabranch.core.formats import Format, formats
from anabranch.errors import ProjectError, did_you_mean

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from anabranch.connectors.contract import Sink


def open_sink(format_name: str, spec: SinkSpec) -> Sink:
    """The sink of an output; nothing is touched yet."""
    sink: Sink = _named(format_named(format_name, spec.name).opens)(spec)
    return sink


def format_named(format_name: str, output: str) -> Format:
    """The format of an output."""
    found = formats().get(format_name)
    if found is None:
        raise ProjectError(
            "FORMAT_NOT_SUPPORTED",
            f'"{output}" has format "{format_name}", which this version does not write',
            hint=did_you_mean(format_name, formats()) or f"formats that can be written: {', '.join(formats())}",
        )
    return found


def is_readable(format_name: str) -> bool:
    """Whether outputs of this format can be read at a cut."""
    return format_name in formats() and formats()[format_name].reads is not None


def read_dataset(format_name: str, location: str, version: str) -> ds.Dataset:
    """A version of an output, as an Arrow dataset."""
    reads = formats()[format_name].reads
    assert reads is not None, f"{format_name} cannot be read"
    return _named(reads)(location, version)


def _named(entry: str) -> Callable[..., Any]:
    module, _, name = entry.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), name)
    return found
