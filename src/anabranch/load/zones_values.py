"""Values of an environment in place of `${name}`; references to secrets, which have a colon, are left alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from anabranch.core.environment import VARIABLE
from anabranch.errors import ProjectError, did_you_mean
from anabranch.load.yaml_file import RawYaml

_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}")

Steps = tuple[str | int, ...]


@dataclass
class Values:
    """What `${name}` stands for; unknown names are noted with their places."""

    known: Mapping[str, Any]
    problems: list[ProjectError] = field(default_factory=list)

    def put_into(self, raw: RawYaml, data: Any, steps: Steps = ()) -> Any:
        """The data of a file with the values in it. One that is all of a text keeps its own type."""
        if isinstance(data, dict):
            return {key: self.put_into(raw, value, (*steps, key)) for key, value in data.items()}
        if isinstance(data, list):
            return [self.put_into(raw, value, (*steps, place)) for place, value in enumerate(data)]
        if not isinstance(data, str):
            return data
        if whole := _REFERENCE.fullmatch(data):
            return self._value(whole[1], raw, steps, data)
        return _REFERENCE.sub(lambda found: str(self._value(found[1], raw, steps, found[0])), data)

    def _value(self, name: str, raw: RawYaml, steps: Steps, text: str) -> Any:
        if name in self.known:
            return self.known[name]
        hint = did_you_mean(name, self.known) or f"add `{name}: ...` under `values`, or under those of an environment"
        message = f'there is no value "{name}"'
        self.problems.append(ProjectError("PROJECT_UNKNOWN_VALUE", message, where=raw.where(*steps), hint=hint))
        return text


def environment_problem(name: str, known: Mapping[str, Any], raw: RawYaml) -> ProjectError:
    """The error for an environment that the project does not have."""
    names = ", ".join(known) or "none"
    return ProjectError(
        "PROJECT_UNKNOWN_ENVIRONMENT",
        f'there is no environment "{name}"; those there are: {names}',
        where=raw.where("environments"),
        hint=did_you_mean(name, known) or f"say --env, or {VARIABLE}, with one of them, or leave it out",
    )
