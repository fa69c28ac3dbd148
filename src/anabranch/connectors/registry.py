"""Open the sink of an output, or read a version of one, by the name of its format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from anabranch.connectors.contract import SinkSpec
from anabranch.core.formats import OURS, Format, broken, formats, plugin_fault, plugins
from anabranch.errors import ProjectError, did_you_mean

if TYPE_CHECKING:
    import pyarrow.dataset as ds

    from anabranch.connectors.contract import Sink


def open_sink(format_name: str, spec: SinkSpec) -> Sink:
    """The sink of an output; nothing is touched yet."""
    opens = format_named(format_name, spec.name).opens
    try:
        opener = _named(opens)
    except (ImportError, AttributeError) as error:
        plugin = next((each for each in plugins() if each.name == format_name and format_name not in OURS), None)
        if plugin is None:
            raise
        raise plugin_fault(replace(plugin, fault=f"{opens}: {error}"), spec.name) from error
    sink: Sink = opener(spec)
    return sink


def format_named(format_name: str, output: str) -> Format:
    """The format of an output."""
    found = formats().get(format_name)
    if found is None and (plugin := broken(format_name)):
        raise plugin_fault(plugin, output)
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
