"""A project from a program or a notebook: run it, watch it, stop it, and look at rows before anything is written.

from anabranch import Controller

shipping = Controller("path/to/project")
shipping.test_input("shipment")                   # rows of an entity's source, as they are read
shipping.test_output("shipment", "silver")        # rows that a zone would be given; nothing is written anywhere
shipping.run()                                    # over what is available
shipping.run(zones=["gold"], await_termination=False)      # until stop()
shipping.status()                                 # as records; in a notebook, a table
shipping.stop()
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.core.environment import chosen_environment, environment
from anabranch.core.events import Event, Listener, RunFinished
from anabranch.core.selection import Selection
from anabranch.errors import ProjectError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from anabranch.core.declarations import Pipeline
    from anabranch.core.lineage import Lineage
    from anabranch.engine.run import RunSummary
    from anabranch.load.project import Project
    from anabranch.read import Cut


class Records(list[dict[str, Any]]):
    """Records that a notebook shows as a table.

    >>> Records([{"channel": "orders", "epoch": 3}])._repr_html_()
    '<table><tr><th>channel</th><th>epoch</th></tr><tr><td>orders</td><td>3</td></tr></table>'
    """

    def _repr_html_(self) -> str:
        columns = list(dict.fromkeys(name for record in self for name in record))
        head = "".join(f"<th>{escape(name)}</th>" for name in columns)
        rows = ("".join(f"<td>{escape(_shown(record.get(name)))}</td>" for name in columns) for record in self)
        return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


class Controller:
    """One project. It runs in this process, in front or in the background, in the Spark session that is active or a new
    one."""

    def __init__(self, project: str | Path = ".", *, env: str | None = None, listener: Listener | None = None) -> None:
        self._folder, self._env = Path(project), env
        self._listener = listener or _nobody
        self._background: _Background | None = None

    @property
    def project(self) -> Project:
        """What the project file says now."""
        from anabranch.load.project import read_project

        with self._environment():
            return read_project(self._folder)

    def run(self, *, zones: Iterable[str] | None = None, await_termination: bool = True) -> RunSummary | None:
        """Run over what is available; or, without waiting, until `stop` is called.

        With `zones`, only channels that feed one of these: the zones of an entity share their epochs, so what comes
        before them in the same channel moves as well.
        """
        from anabranch.engine.run import run

        selection = self._selection(zones)
        if await_termination:
            with self._environment():
                return run(self.project, once=True, listener=self._listener, selection=selection)
        if self._background is not None and self._background.is_alive():
            raise ProjectError("RUNNING_ALREADY", "this project runs already", hint="call stop() first")
        self._background = _Background(self.project, self._env, self._listener, selection)
        self._background.start()
        self._background.begun.wait()
        self._background.raise_if_failed()
        return None

    def stop(self) -> RunSummary | None:
        """Let the epochs in hand finish; what the background run did. Raises what made it fail."""
        background, self._background = self._background, None
        if background is None:
            return None
        background.stop()
        background.raise_if_failed()
        return background.summary

    @property
    def is_running(self) -> bool:
        """Whether a run goes on in the background."""
        return self._background is not None and self._background.is_alive()

    def status(self) -> Records:
        """Each channel: its published epoch, what is open, who runs it. No JVM is asked."""
        from anabranch.read import open_ledger
        from anabranch.store.status import channel_records

        with open_ledger(self.project) as (ledger, pipeline):
            return Records(channel_records(ledger, pipeline.pipeline_id))

    def status_frame(self) -> pd.DataFrame:
        """The same as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(list(self.status()))

    def cut(self, **at: Any) -> Cut:
        """The tables at the last published epoch."""
        from anabranch.read import cut

        with self._environment():
            return cut(self._folder, **at)

    def test_input(self, entity: str, rows: int = 20) -> pa.Table:
        """Rows of an entity's source as they are read; nothing is written anywhere."""
        return self.test_output(f"{entity}_source", rows=rows)

    def test_output(self, entity: str, zone: str | None = None, rows: int = 20) -> pa.Table:
        """Rows that a zone of an entity would be given; nothing is written anywhere.

        Without a zone, `entity` is the name of any dataset that streams feed.
        """
        from anabranch.engine.preview import preview

        name = entity if zone is None else f"{zone}.{entity}"
        with self._environment():
            return preview(self.project, name, rows, self._listener)

    def graph(self) -> Graphed:
        """The datasets and what they read; in a notebook, a picture."""
        from anabranch.load.python_files import load_pipeline

        with self._environment():
            return Graphed(load_pipeline(self.project, with_spark=False).pipeline)

    def _repr_html_(self) -> str:
        return self.graph()._repr_html_()

    def _environment(self) -> AbstractContextManager[None]:
        """Whatever reads the project's files does so for the environment that was asked for."""
        return environment(self._env or chosen_environment())

    def _selection(self, zones: Iterable[str] | None) -> Selection:
        if zones is None:
            return Selection()
        wanted = list(zones)
        outputs = [d.name for d in self.graph().pipeline.datasets if d.is_output]
        known = {name.rpartition(".")[0] for name in outputs}
        for zone in wanted:
            if zone not in known:
                text, hint = f'no zone "{zone}"', did_you_mean(zone, known) or f"zones: {', '.join(sorted(known))}"
                raise ProjectError("ZONE_UNKNOWN", text, hint=hint)
        return Selection(refresh=frozenset(name for name in outputs if name.rpartition(".")[0] in wanted))


class Graphed:
    """The graph of a pipeline: a picture in a notebook, text elsewhere."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __str__(self) -> str:
        found = self._lineage()
        own = [(node.name, ", ".join(found.inputs(node.name))) for node in found.nodes if not node.is_outside]
        return "\n".join(f"{name} <- {reads}" if reads else name for name, reads in own)

    def _repr_html_(self) -> str:
        from anabranch.core.graph_html import as_html

        page = escape(as_html(self.pipeline.name, self._lineage()), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="480" style="border:0"></iframe>'

    def _lineage(self) -> Lineage:
        from anabranch.core.graph import build
        from anabranch.core.lineage import lineage
        from anabranch.core.plan import make_plan

        graph = build(self.pipeline)
        plan = make_plan(graph)
        channels = {d.name: part.channel.name for part in (*plan.channels, *plan.views) for d in part.channel.datasets}
        return lineage(graph, channels, {})


class _Background(threading.Thread):
    """A run that goes on until it is told to stop."""

    def __init__(self, project: Project, env: str | None, listener: Listener, selection: Selection) -> None:
        super().__init__(name=f"anabranch-{project.name}", daemon=True)
        from anabranch.engine.run import Stop

        self._project, self._listener, self._selection = project, listener, selection
        self._env = env  # a new thread does not inherit it
        self._asked = Stop()
        self.begun = threading.Event()
        self.error: BaseException | None = None
        self.summary: RunSummary | None = None

    def run(self) -> None:
        try:
            with environment(self._env or chosen_environment()):
                self._work()
        except BaseException as error:  # noqa: BLE001 - told to whoever stops it
            self.error = error
        finally:
            self.begun.set()

    def _work(self) -> None:
        from anabranch.engine.planning import plan_with_spark
        from anabranch.engine.run import at_work, wait, watched

        started = time.monotonic()
        planner = partial(plan_with_spark, self._project)
        with watched(self._project, self._listener, self._selection) as listener:
            with at_work(self._project, planner, listener, once=False, selection=self._selection) as work:
                self.begun.set()
                failed = wait(work, self._asked)
            self.summary = work.summary(time.monotonic() - started)
            if failed:
                raise failed[0]
            listener(RunFinished(self._project.name, self.summary.epochs, self.summary.rows, self.summary.seconds))

    def stop(self) -> None:
        self._asked.signal = signal.SIGTERM
        self.join()

    def raise_if_failed(self) -> None:
        if self.error is not None:
            raise self.error


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


def _nobody(event: Event) -> None:
    """A listener that does not listen."""
