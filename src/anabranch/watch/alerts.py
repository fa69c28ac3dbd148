"""Tell targets of incidents: each gets its alerts in order, and one that fails keeps nothing from the others."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anabranch.connectors.http_post import NoAnswerError, post
from anabranch.core.alert_targets import Command, LogFile, Target, Terminal, Webhook
from anabranch.core.hidden import hidden, hide
from anabranch.core.secrets import reveal
from anabranch.errors import AnabranchError, SinkError
from anabranch.store.status import moment
from anabranch.watch.incidents import Incident, Incidents, Waiting

#: Targets that are told at the same time.
_AT_ONCE = 8
#: Seconds before a webhook is tried again within one look.
_AGAIN = (0.3, 1.0)

Show = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Refused:
    """A target that could not be told, and why."""

    target: str
    incident: int
    reason: str


def alert_record(waiting: Waiting, project: str) -> dict[str, Any]:
    """An alert as JSON; secrets are taken out."""
    record = incident_record(waiting.incident)
    # The number alone begins anew with a new history, and a receiver would take the next incident for an old one.
    key = f"{project}/{waiting.incident.incident}-{int(waiting.incident.opened)}/{waiting.phase}"
    return {"alert": waiting.phase, "key": key, "project": hide(project), **record}


def incident_record(incident: Incident) -> dict[str, Any]:
    """An incident as JSON, with times that people can read."""
    said: dict[str, Any] = hidden(asdict(incident))
    renamed = {"on": said.pop("about"), "where": said.pop("place"), "limit": said.pop("most")}
    return {**said, **renamed, **{name: moment(said[name]) for name in ("opened", "seen", "closed")}}


def deliver(incidents: Incidents, targets: Sequence[Target], root: Path, show: Show) -> list[Refused]:
    """Tell every target what it has not been told yet; those that could not be told are told at the next look."""
    waiting = incidents.waiting(time.time())
    queues = [(target, [each for each in waiting if each.target == target.name]) for target in targets]

    def tell(target: Target, queue: Sequence[Waiting]) -> list[Refused]:
        refused: list[Refused] = []
        for each in queue:
            if not incidents.claim(each.alert, time.time()):
                continue
            try:
                send(target, alert_record(each, incidents.pipeline), root, show)
            except Exception as error:  # noqa: BLE001 - whatever it is, other targets and alerts must not suffer
                reason = error.message if isinstance(error, AnabranchError) else f"{type(error).__name__}: {error}"
                incidents.refused(each.alert, reason)
                refused.append(Refused(target.name, each.incident.incident, hide(reason)))
            else:
                incidents.told(each.alert, time.time())
        return refused

    busy = [(target, queue) for target, queue in queues if queue]
    if not busy:
        return []
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="alert") as pool:
        return [each for found in pool.map(lambda pair: tell(*pair), busy) for each in found]


def send(target: Target, alert: dict[str, Any], root: Path, show: Show) -> None:
    """Tell one target; raises when it does not have it."""
    match target:
        case Terminal():
            show(alert)
        case LogFile(_, path):
            _append(Path(path), alert)
        case Webhook():
            _post(target, alert)
        case Command():
            _start(target, alert, root)


def _refusal(target: Target, reason: str) -> SinkError:
    return SinkError(
        "ALERT_NOT_TAKEN",
        f'the alert target "{target.name}" did not take an alert: {reason}',
        where=target.where,
        hint="see to the target; the next look of `anabranch watch` tries again",
        retryable=True,
    )


def _append(path: Path, alert: dict[str, Any]) -> None:
    """One line, written at once: lines of two watchers do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(alert, ensure_ascii=False) + "\n").encode())


def _post(target: Webhook, alert: dict[str, Any]) -> None:
    """The same key every time: a receiver that looks at it takes an alert once, also when an answer was lost."""
    body = json.dumps(alert, ensure_ascii=False).encode()
    headers = {name: reveal(value) for name, value in target.headers.items()}
    headers |= {"Content-Type": "application/json", "Idempotency-Key": str(alert["key"])}
    url = reveal(target.url)
    for wait in (*_AGAIN, None):
        try:
            answer = post(url, "POST", headers, body, target.timeout)
        except NoAnswerError as error:
            reason, again = f"no answer: {error}", True
        else:
            if answer.is_taken:
                return
            reason, again = f"it answered {answer.status}: {answer.text[:200]}", answer.may_pass
        if wait is None or not again:
            raise _refusal(target, reason)
        time.sleep(wait)


def _start(target: Command, alert: dict[str, Any], root: Path) -> None:
    words = [reveal(word) for word in target.words]
    body = json.dumps(alert, ensure_ascii=False)
    try:
        done = subprocess.run(
            words, input=body, capture_output=True, text=True, timeout=target.timeout, cwd=root, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _refusal(target, f"it was not done after {target.timeout:g} seconds") from error
    except OSError as error:
        raise _refusal(target, f"it cannot be started: {error.strerror or error}") from error
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        said = f": {lines[-1][:200]}" if lines else ""
        raise _refusal(target, f"it ended with {done.returncode}{said}")
