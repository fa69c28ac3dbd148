"""YAML files with positions: every problem of a file is found at once and points at its line and column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Generic, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from anabranch.core.where import Where
from anabranch.errors import ProjectError, did_you_mean

M = TypeVar("M", bound=BaseModel)
Steps = tuple[str | int, ...]

_MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class YamlFile(Generic[M]):
    """What a file says, where it says it, and what is wrong with it.

    `value` is there also when problems were found, as long as leaving out the faulty parts makes sense of the rest.
    """

    path: Path
    value: M | None
    problems: tuple[ProjectError, ...]
    root: yaml.Node | None

    def where(self, *steps: str | int) -> Where:
        """The place of the value at `steps`, or of the nearest thing around it that is there."""
        return _mark(self.path, _nearest(self.root, steps))

    def length(self, *steps: str | int) -> int:
        """How many items the list at `steps` has, those with problems included."""
        node = _nearest(self.root, steps)
        return len(node.value) if isinstance(node, yaml.SequenceNode) else 0

    def said(self, *steps: str | int) -> str:
        """The scalar at `steps` as text, nothing if there is none."""
        node = _nearest(self.root, steps)
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""


class _Loader(yaml.SafeLoader):
    """Dates stay text, and a scalar that cannot be read is reported with its place."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError) as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True)
class RawYaml:
    """A file as YAML reads it, before anything is known about what it should say."""

    path: Path
    data: Any
    problems: tuple[ProjectError, ...]
    root: yaml.Node | None
    is_yaml: bool = True

    def where(self, *steps: str | int) -> Where:
        """The place of the value at `steps`, or of the nearest thing around it that is there."""
        return _mark(self.path, _nearest(self.root, steps))


def read_yaml(path: Path, model: type[M]) -> YamlFile[M]:
    """Read `path` as a `model`; nothing is raised for what the file says, all of it is in `problems`."""
    raw = load_yaml(path)
    return validated(raw, raw.data, model)


def validated(raw: RawYaml, data: Any, model: type[M]) -> YamlFile[M]:
    """What a file says as a `model`; `data` is what the file holds, with values replaced but of the same shape."""
    if not raw.is_yaml:
        return YamlFile(raw.path, None, raw.problems, None)
    return _validate(raw.path, raw.root, data, model, list(raw.problems))


def load_yaml(path: Path) -> RawYaml:
    """Read a file; what is no YAML is in `problems`."""
    try:
        loader = _Loader(path.read_bytes())
    except OSError as error:
        return _broken(path, "PROJECT_FILE_UNREADABLE", f"cannot be read: {error.strerror}", Where(str(path)))
    except yaml.YAMLError as error:
        return _broken(path, "PROJECT_YAML_SYNTAX", _syntax_text(error), _syntax_where(path, error))
    try:
        root = loader.get_single_node()
        repeated = [_repeated_key(path, key, first) for key, first in _repeated_keys(root)]
        data = loader.construct_document(root) if root is not None else {}
    except yaml.YAMLError as error:
        return _broken(path, "PROJECT_YAML_SYNTAX", _syntax_text(error), _syntax_where(path, error))
    except RecursionError:
        return _broken(path, "PROJECT_YAML_SYNTAX", "nested too deeply", Where(str(path), 1, 1))
    finally:
        loader.dispose()
    return RawYaml(path, {} if data is None else data, tuple(repeated), root)


def _broken(path: Path, code: str, message: str, where: Where) -> RawYaml:
    hint = {
        "PROJECT_FILE_UNREADABLE": "check that the file is there and may be read",
        "PROJECT_YAML_SYNTAX": "indent with spaces, write `key: value` with a space, quote text that has : or # in it",
    }[code]
    return RawYaml(path, None, (ProjectError(code, message, where=where, hint=hint),), None, is_yaml=False)


def _validate(path: Path, root: yaml.Node | None, data: Any, model: type[M], found: list[ProjectError]) -> YamlFile[M]:
    try:
        return YamlFile(path, model.model_validate(data), tuple(found), root)
    except ValidationError as error:
        faults = error.errors(include_url=False)
    problems = [*found, *(_problem(path, root, fault, model) for fault in faults)]
    return YamlFile(path, _sense(data, model, faults), tuple(problems), root)


def _sense(data: Any, model: type[M], faults: list[ErrorDetails]) -> M | None:
    """What is left when the faulty parts are taken out; where a part lacks something, the part goes."""
    for _ in range(_MOST_ATTEMPTS):
        places = [fault["loc"][:-1] if fault["type"] == "missing" else fault["loc"] for fault in faults]
        if () in places:
            return None
        data = _without(data, places)
        try:
            return model.model_validate(data)
        except ValidationError as error:
            faults = error.errors(include_url=False)
    return None


def _problem(path: Path, root: yaml.Node | None, fault: ErrorDetails, model: type[BaseModel]) -> ProjectError:
    steps = fault["loc"]
    if fault["type"] == "extra_forbidden":
        known = _fields(model, steps[:-1])
        text, hint = f"{_dotted(steps)}: unknown field", did_you_mean(str(steps[-1]), known)
        hint = hint or f"known fields: {', '.join(known)}"
        return ProjectError("PROJECT_UNKNOWN_FIELD", text, where=_mark(path, _key(root, steps)), hint=hint)
    if fault["type"] == "missing":
        where = _mark(path, _nearest(root, steps[:-1]))
        text = f"{_dotted(steps)}: missing field"
        return ProjectError("PROJECT_MISSING_FIELD", text, where=where, hint=f"add `{steps[-1]}: ...`")
    hint = str(fault.get("ctx", {}).get("hint", "")) or "correct the value"
    text = f"{_dotted(steps)}: {_sentence(fault)}"
    return ProjectError("PROJECT_BAD_VALUE", text, where=_mark(path, _nearest(root, steps)), hint=hint)


def _sentence(fault: ErrorDetails) -> str:
    plain = {
        "string_type": "must be text",
        "bool_type": "must be true or false",
        "bool_parsing": "must be true or false",
        "int_type": "must be a whole number",
        "int_parsing": "must be a whole number",
        "literal_error": f"must be {fault.get('ctx', {}).get('expected', '')}",
        "list_type": "must be a list",
        "dict_type": "must be a mapping of names to values",
        "model_type": "must be a mapping of names to values",
        "model_attributes_type": "must be a mapping of names to values",
    }.get(fault["type"], fault["msg"].removeprefix("Value error, "))
    given = fault["input"]
    shown = "nothing" if given is None else repr(given)
    return f"{plain}, not {shown if len(shown) < 60 else type(given).__name__}" if plain.startswith("must") else plain


def _dotted(steps: Steps) -> str:
    return ".".join(str(step) for step in steps) or "the file"


def _fields(model: type[BaseModel], steps: Steps) -> list[str]:
    """The names of the fields at `steps`, as written in the file."""
    inside: Any = model
    for step in steps:
        inside = _within(_plain(inside), step)
    inside = _plain(inside)
    if isinstance(inside, type) and issubclass(inside, BaseModel):
        return [field.alias or name for name, field in inside.model_fields.items()]
    return []


def _within(kind: Any, step: str | int) -> Any:
    """The type of what is at `step` of a model, a list or a mapping."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}.get(str(step))
    return next(iter(reversed(get_args(kind))), None)


def _plain(kind: Any) -> Any:
    """A type without `None` beside it."""
    if isinstance(kind, UnionType) or get_origin(kind) is Union:
        return next((each for each in get_args(kind) if each is not type(None)), None)
    return kind


def _without(data: Any, faulty: list[Steps]) -> Any:
    """`data` without the values at the faulty places; the shared parts are copied, never changed."""
    if isinstance(data, dict):
        gone = {steps[0] for steps in faulty if len(steps) == 1}
        return {
            key: _without(value, [steps[1:] for steps in faulty if steps[0] == key])
            for key, value in data.items()
            if key not in gone
        }
    if isinstance(data, list):
        kept = [index for index in range(len(data)) if (index,) not in faulty]
        return [_without(data[index], [steps[1:] for steps in faulty if steps[0] == index]) for index in kept]
    return data


def _pairs(node: yaml.Node | None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    if isinstance(node, yaml.MappingNode):
        yield from node.value


def _child(node: yaml.Node | None, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """The key and value nodes at `step`; for an item of a list both are the item."""
    if isinstance(node, yaml.SequenceNode):
        items = node.value
        return (items[step], items[step]) if isinstance(step, int) and step < len(items) else None
    return next(((key, value) for key, value in _pairs(node) if key.value == str(step)), None)


def _nearest(root: yaml.Node | None, steps: Steps) -> yaml.Node | None:
    node = root
    for step in steps:
        child = _child(node, step)
        if child is None:
            break
        node = child[1]
    return node


def _key(root: yaml.Node | None, steps: Steps) -> yaml.Node | None:
    around = _nearest(root, steps[:-1])
    child = _child(around, steps[-1])
    return child[0] if child else around


def _mark(path: Path, node: yaml.Node | None) -> Where:
    mark = node.start_mark if node is not None else None
    return Where(str(path), mark.line + 1, mark.column + 1) if mark else Where(str(path), 1, 1)


def _repeated_keys(root: yaml.Node | None) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Keys written twice in one mapping, each with its first place; YAML would let the last one win in silence."""
    seen: set[int] = set()
    waiting = [root] if root is not None else []
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias, possibly of something around it
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        first: dict[str, yaml.Node] = {}
        for key, value in _pairs(node):
            waiting.append(value)
            if isinstance(key, yaml.ScalarNode) and key.value != "<<" and first.setdefault(key.value, key) is not key:
                yield key, first[key.value]


def _repeated_key(path: Path, key: yaml.Node, first: yaml.Node) -> ProjectError:
    text = f"{key.value}: written twice, first at line {first.start_mark.line + 1}"
    return ProjectError("PROJECT_REPEATED_FIELD", text, where=_mark(path, key), hint="keep one of them")


def _syntax_text(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError):
        return "not valid YAML: " + " ".join(part for part in (error.context, error.problem) if part)
    return f"not valid YAML: {getattr(error, 'reason', None) or error}"


def _syntax_where(path: Path, error: yaml.YAMLError) -> Where:
    mark = error.problem_mark or error.context_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return Where(str(path), mark.line + 1, mark.column + 1) if mark else Where(str(path), 1, 1)
