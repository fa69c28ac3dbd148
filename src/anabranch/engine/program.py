"""Put the flows of a channel into one wide frame, so that one streaming query feeds every output.

A program is the seam between planning and staging: a frame, and for each output which of its columns to take and which
boolean column says that a row is for it. Row-wise flows over the same base are fused into one pass (`fuse`); the groups
that remain are branches of a union, in the same query with the same offsets. Of native flows the frame has the raw
records only; workers compute them (`native_flows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from anabranch.core.quality import quarantine_of
from anabranch.engine.catalyst import Catalyst, catalyst_of, describe, is_source, keeps_state, sources
from anabranch.engine.catalyst_nodes import Node, analyzed, children_of, nodes
from anabranch.engine.chains import Chain, Part, Walk, above_shared_rows, parts, share_sources
from anabranch.engine.changes import merges, table_columns
from anabranch.engine.flows import union_of
from anabranch.engine.fuse import FOLLOWS_NAMES, SETTINGS, Wide, fuse, unfused
from anabranch.engine.native_flows import PLAIN, RAW, NativeChains, file_feed, native_chains, native_types, raw_records
from anabranch.engine.native_pass import NativeMode, NativePass, native_mode
from anabranch.engine.native_rows import NativeWork
from anabranch.engine.quality import is_added, judged, payload_in, rules_of, spent
from anabranch.engine.rows import Judged, OutputColumns
from anabranch.engine.stateful import state_settings, updating
from anabranch.errors import ProjectError, ProjectErrors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.core.changes import Merge
    from anabranch.core.declarations import Dataset
    from anabranch.core.plan import ChannelPlan


@dataclass(frozen=True)
class Program:
    """One streaming frame for a whole channel.

    `sources` has a line for each scan of a source; `how` says for each flow whether it is native or fused, or why it is
    a branch.
    """

    frame: DataFrame
    parts: tuple[OutputColumns, ...]
    sources: tuple[str, ...]
    how: Mapping[str, str]
    updates: bool = False  # rows are given again whenever they change, not once they are final
    natives: tuple[NativePass, ...] = ()  # their raw records are in the frame
    by_files: NativePass | None = None  # all of the frame, where workers can read the files of an epoch

    @property
    def repeatable(self) -> bool:
        """Whether it is harmless to compute a batch twice: row-wise flows keep no state."""
        return not any(how.startswith(_BRANCH) for how in self.how.values())


_BRANCH = "branch"


def make_program(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> Program:
    """Join the flows that feed outputs.

    Groups are ordered by what they read, then by name: Spark numbers the sources of a checkpoint by their place in the
    plan, and moving a flow in the user's file must not renumber them.
    """
    feeding = _feeding(plan, frames)
    updates = updating([s.flow for s in plan.flows if s.flow.name in feeding], frames)
    schemas = output_schemas(plan, frames)
    session = frames[next(iter(feeding))].sparkSession
    catalyst = catalyst_of(session)
    targets = [d.name for d in feeding.values()]
    aligned = {
        f: _judged(_aligned(catalyst, frames[f], schemas[d.name]) if targets.count(d.name) > 1 else frames[f], d)
        for f, d in feeding.items()
    }
    follows = any(keeps_state(analyzed(frame)) for frame in aligned.values())
    own = {FOLLOWS_NAMES: str(follows).lower(), **state_settings(aligned.values())}
    for key, value in {**SETTINGS, **own}.items():  # a query keeps those that hold when it is started
        session.conf.set(key, value)
    plans = share_sources(
        catalyst, {p: plan for f in sorted(aligned) for p, plan in parts(catalyst, f, aligned[f]).items()}
    )
    maker = _Maker(feeding, aligned, native_mode(session) if _streams(aligned) else None)
    return replace(maker.program(catalyst, plans), updates=updates)


def _streams(frames: Mapping[str, DataFrame]) -> bool:
    return all(frame.isStreaming for frame in frames.values())


@dataclass(frozen=True)
class _Maker:
    """Makes programs of flows that are known by name; again, without native ones, of what these leave to Spark."""

    feeding: Mapping[str, Dataset]
    aligned: Mapping[str, DataFrame]
    native: NativeMode | None

    def program(self, catalyst: Catalyst, plans: Mapping[Part, Node]) -> Program:
        walk = Walk(catalyst)
        groups = _groups([walk.chain(part, plan) for part, plan in plans.items()])
        # An audit computes records once more, which must not be done to a batch of what keeps state.
        allowed = self.native and not (self.native == "audit" and any(keeps_state(g[0].base) for g in groups))
        alone = len(groups) == 1
        # What stands above a state is computed with it.
        tried = [g for g in groups if allowed and not g[0].reason and not keeps_state(g[0].base)]
        compiled = {id(g): self._compiled(catalyst, g, alone=alone) for g in tried}
        # Of files of JSON and Parquet there are no raw records to hand over: workers read all of them, or nothing.
        own = [native for native in compiled.values() if native.of_files]
        whole = own[0] if own and alone and not own[0].why else None
        raw = {key: native for key, native in compiled.items() if native.chains and not native.of_files}
        branches = _branches(catalyst, groups, raw)
        frame, names = _union([b.wide.frame for b in branches])
        columns, natives = [], []
        for branch, renamed in zip(branches, names, strict=True):
            columns += [self._columns(c, branch.wide, renamed) for c in branch.chains]
            if branch.native:
                natives.append(self._native(branch.native, _feed(branch.native, branch.wide, renamed)))
        by_files = self._native(whole, _NO_FEED) if whole else None
        how = _how(branches, compiled.values(), whole)
        return Program(frame, tuple(columns), sources(frame), how, natives=tuple(natives), by_files=by_files)

    def _columns(self, one: Chain, wide: Wide, renamed: Mapping[str, str]) -> OutputColumns:
        return _columns(one, self.feeding[one.flow], wide, renamed, self.aligned[one.flow].columns)

    def _compiled(self, catalyst: Catalyst, group: Sequence[Chain], *, alone: bool) -> NativeChains:
        schemas = {c.part: native_types(self.aligned[c.flow].schema) for c in group}
        return native_chains(catalyst, group, schemas, alone=alone)

    def _native(self, native: NativeChains, feed: OutputColumns) -> NativePass:
        assert self.native is not None, "asked for"
        parts = []
        for chain, flow in zip(native.chains, native.program.flows, strict=True):
            own = tuple(flow.schema.names)
            alike = Wide(self.aligned[chain.flow], {chain.part: None}, {chain.part: own}, {})
            parts.append(self._columns(chain, alike, {name: name for name in own}))
        work = NativeWork(feed, native.program, tuple(parts))
        return NativePass(work, native, self.native, replace(self, native=None).program, file_feed(native))


#: Of a native pass whose records are in no frame.
_NO_FEED = OutputColumns(None, None, ())


def _feed(native: NativeChains, wide: Wide, renamed: Mapping[str, str]) -> OutputColumns:
    """Where the raw records of native flows are in a wide frame."""
    mask = wide.masks[RAW]
    taken = zip(wide.columns[RAW], native.program.raw, strict=True)
    return OutputColumns(
        None, renamed[mask] if mask else renamed.get(""), tuple((renamed[name], raw) for name, raw in taken)
    )


def _feeding(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> dict[str, Dataset]:
    """The flows whose rows matter, with what they feed: outputs, and views whose rows are judged."""
    streams = any(frame.isStreaming for frame in frames.values())
    feeding = {}
    for step in plan.flows:
        if step.flow.name not in frames:
            continue  # it runs once, apart from the others
        dataset = next(d for d in plan.channel.datasets if d.name == step.flow.target)
        # The rules of a view over a table at rest are kept, but there is no epoch to count them in.
        counted = dataset.expectations and frames[step.flow.name].isStreaming == streams
        if dataset.is_output or counted:
            feeding[step.flow.name] = dataset
    return feeding


def _judged(frame: DataFrame, dataset: Dataset) -> DataFrame:
    if not dataset.expectations:
        return frame
    with_rules = judged(frame, dataset)
    return with_rules if dataset.is_output else with_rules.select([c for c in with_rules.columns if is_added(c)])


def _how(branches: Sequence[_Branch], compiled: Iterable[NativeChains], whole: NativeChains | None) -> dict[str, str]:
    """How each flow is run; where only a part of it is a branch, or is not native, that is what is worth knowing."""
    why = {part: reason for native in compiled for part, reason in native.why.items() if reason != PLAIN}
    if whole:
        return {chain.flow: "native" for chain in whole.chains}
    how = {chain.flow: "native" for branch in branches if branch.native for chain in branch.native.chains}
    for one in sorted((c for branch in branches for c in branch.chains), key=lambda c: c.part, reverse=True):
        if one.reason or how.get(one.flow, "native") == "native":
            spark = f", spark: {why[one.part]}" if one.part in why else ""
            how[one.flow] = f"{_BRANCH}: {one.reason}" if one.reason else f"fused{spark}"
    return how


def output_schemas(plan: ChannelPlan, frames: Mapping[str, DataFrame]) -> dict[str, StructType]:
    """The columns of each output: those of all its flows together."""
    called = [s.flow for s in plan.flows if s.flow.name in frames]
    by_name = {d.name: d for d in plan.channel.datasets}
    feeding = {d.name: [f for f in called if f.target == d.name] for d in plan.channel.datasets}
    schemas = {name: union_of([frames[f.name] for f in flows]).schema for name, flows in feeding.items() if flows}
    schemas = {name: _without(schema, spent(by_name[name])) for name, schema in schemas.items()}
    # A quarantine table is fed by no flow of its own.
    schemas |= {d.name: _declared(d) for d in plan.outputs if d.name not in schemas}
    merging = merges(plan, frames)
    differing = [problem for d in plan.outputs if (problem := _differs(d, schemas[d.name], merging.get(d.name)))]
    if differing:
        raise ProjectErrors(differing)
    return schemas


def _without(schema: StructType, columns: Sequence[str]) -> StructType:
    return StructType([each for each in schema.fields if each.name not in columns]) if columns else schema


def _differs(dataset: Dataset, found: StructType, merge: Merge | None) -> ProjectError | None:
    """How a table's flows differ from the schema it was declared with, if it was."""
    if dataset.schema is None:
        return None
    wanted = _declared(dataset)
    declared = {f.name.lower(): f.dataType.simpleString() for f in wanted}
    types = {f.name: f.dataType for f in found}
    given = {n.lower(): t.simpleString() for n, t in (table_columns(types, merge) if merge else types).items()}
    if declared == given:
        return None
    changed = sorted(name for name in declared.keys() | given.keys() if declared.get(name) != given.get(name))
    words = (f"{name} is {given.get(name, 'missing')}, not {declared.get(name, 'declared')}" for name in changed)
    return ProjectError(
        "SCHEMA_DIFFERS",
        f'the flows of "{dataset.name}" do not give the schema it is declared with: {"; ".join(words)}',
        where=dataset.where,
        hint="cast and select in the flow, or change the declared schema",
    )


def _declared(dataset: Dataset) -> StructType:
    assert dataset.schema is not None, "a table that no flow feeds is declared with its columns"
    wanted = StructType.fromDDL(dataset.schema)
    assert isinstance(wanted, StructType), "a table's schema is a list of columns"
    return wanted


def _aligned(catalyst: Catalyst, frame: DataFrame, schema: StructType) -> DataFrame:
    """The frame with all columns of an output that several flows feed, as Spark makes them those of one table."""
    both = frame.sparkSession.createDataFrame([], schema).unionByName(frame, allowMissingColumns=True)
    return catalyst.frame(children_of(analyzed(both))[1])


@dataclass(frozen=True)
class _Branch:
    """Flows whose rows are in one frame; `first` is the first of all that read its base, native ones among them."""

    chains: tuple[Chain, ...]
    wide: Wide
    first: Chain
    native: NativeChains | None = None


def _branches(
    catalyst: Catalyst, groups: Sequence[Sequence[Chain]], natives: Mapping[int, NativeChains]
) -> list[_Branch]:
    """The groups in an order that does not depend on the user's file; `natives` are those of groups, by their id."""
    branches: list[_Branch] = []
    for group in groups:
        if len(group) == 1 and group[0].reason:
            # Nothing is read twice, and Spark can move what stands above the base below it.
            branches.append(_Branch((group[0],), unfused(catalyst, group[0]), group[0]))
            continue
        native = natives.get(id(group))
        if native:
            raw = raw_records(group[0].base, native)
            fusing = [*(c for c in group if c not in native.chains), raw]
        else:
            fusing = above_shared_rows(group)
        wide = fuse(catalyst, fusing)
        for one in fusing:
            if one.part in wide.alone:
                alone = replace(one, reason=wide.alone[one.part])
                branches.append(_Branch((alone,), unfused(catalyst, one), alone))
        together = tuple(c for c in fusing if c.part not in wide.alone and c.part != RAW)
        if together or native:
            branches.append(_Branch(together, wide, group[0] if native else together[0], native))
    return sorted(branches, key=lambda b: (_reads(b.first), b.first.part))


def _groups(chains: Sequence[Chain]) -> list[list[Chain]]:
    groups: list[list[Chain]] = []
    for one in chains:
        group = next((g for g in groups if g[0].base.fastEquals(one.base)), None)
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return groups


def _reads(one: Chain) -> list[str]:
    return [describe(node) for node in nodes(one.base) if is_source(node)]


def _columns(
    one: Chain, dataset: Dataset, wide: Wide, renamed: Mapping[str, str], columns: Sequence[str]
) -> OutputColumns:
    mask = wide.masks[one.part]
    taken = [(renamed[name], column) for name, column in zip(wide.columns[one.part], columns, strict=True)]
    added = {column: name for name, column in taken if is_added(column)}
    aside = quarantine_of(dataset)
    rules = rules_of(dataset, added)
    return OutputColumns(
        output=dataset.name if dataset.is_output else None,
        # In a union a group's rows are told from those of others by a mask of the group.
        mask=renamed[mask] if mask else renamed.get(""),
        columns=tuple((name, column) for name, column in taken if column not in added and column not in spent(dataset)),
        judged=Judged(dataset.name, one.flow, rules, payload_in(added), aside.name if aside else None)
        if rules
        else None,
        stateful=keeps_state(one.base),
        epoch=dataset.epoch_column,
    )


def _union(frames: Sequence[DataFrame]) -> tuple[DataFrame, list[dict[str, str]]]:
    """One frame with the columns of all, and for each the new names of its columns; "" is the mask of the group."""
    if len(frames) == 1:
        return frames[0], [{name: name for name in frames[0].columns}]
    names = [{"": f"g{i}", **{name: f"g{i}_{name}" for name in f.columns}} for i, f in enumerate(frames)]
    branches = [_branch(frame, i, [f.schema for f in frames], names) for i, frame in enumerate(frames)]
    return reduce(DataFrame.unionAll, branches), names


def _branch(frame: DataFrame, own: int, schemas: Sequence[StructType], names: Sequence[Mapping[str, str]]) -> DataFrame:
    """A branch with the columns of all branches, null where they are not its own, and a mask for each."""
    columns = [F.lit(i == own).alias(f"g{i}") for i in range(len(schemas))]
    for i, schema in enumerate(schemas):
        for field in schema.fields:
            value = F.col(field.name) if i == own else F.lit(None).cast(field.dataType)
            columns.append(value.alias(names[i][field.name]))
    return frame.select(*columns)
