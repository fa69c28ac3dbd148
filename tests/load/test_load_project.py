from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.errors import ProjectError, ProjectErrors
from anabranch.load.project import examine_project, find_spec, read_project

SPARK_SPEC = """\
name: shop
storage: file:///tmp/some%20lake
catalog: main
schema: sales
configuration:
  spark.sql.shuffle.partitions: "4"
libraries:
  - glob:
      include: transformations/**
  - glob:
      include: extra.py
"""


def write(folder: Path, spec: str, name: str = "anabranch.yml", files: tuple[str, ...] = ("pipeline.py",)) -> Path:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")
    (folder / name).write_text(spec)
    return folder / name


def problems(path: Path) -> list[tuple[str, str, str]]:
    found = examine_project(path).problems
    return [(p.code, str(p.where).replace(f"{path.parent}/", ""), p.message) for p in found]


def test_the_spec_of_spark_is_read_as_it_is(tmp_path: Path) -> None:
    files = ("transformations/b.py", "transformations/deep/a.py", "extra.py", "transformations/__pycache__/b.pyc")
    project = read_project(write(tmp_path, SPARK_SPEC, "spark-pipeline.yml", files))
    assert (project.name, project.catalog, project.database) == ("shop", "main", "sales")
    assert project.storage == "/tmp/some lake"
    assert project.ledger == "/tmp/some lake/_anabranch/ledger.db"
    assert project.configuration == {"spark.sql.shuffle.partitions": "4"}
    assert [str(file.relative_to(tmp_path)) for file in project.files] == [
        "transformations/b.py",
        "transformations/deep/a.py",
        "extra.py",
    ]


def test_a_name_is_enough_for_our_own_file(tmp_path: Path) -> None:
    project = read_project(write(tmp_path, "name: shop", files=("transformations/x.py", "pipeline.py")))
    assert [file.name for file in project.files] == ["pipeline.py", "x.py"]
    assert project.storage == str(tmp_path / "lake")
    assert project.ledger == str(tmp_path / "lake/_anabranch/ledger.db")
    assert (project.trigger_seconds, project.lease_seconds, project.retention_seconds) == (10, 30, 7 * 86400)
    assert project.root == tmp_path


def test_our_own_fields(tmp_path: Path) -> None:
    spec = "name: shop\nstorage: ../out\nledger: postgresql://db/x\ntrigger: 500 ms\nlease: 1 min\nretention: 0 days\n"
    project = read_project(write(tmp_path, spec + "configuration: {a: 8, b: true, c: x, d: 1.5}"))
    assert Path(project.storage).resolve() == tmp_path.parent / "out"
    assert project.ledger == "postgresql://db/x"
    assert (project.trigger_seconds, project.lease_seconds, project.retention_seconds) == (0.5, 60, 0)
    assert project.configuration == {"a": "8", "b": "true", "c": "x", "d": "1.5"}


def test_every_problem_at_once(tmp_path: Path) -> None:
    spec = """\
nmae: shop
name: shop
storage: s3://bucket/lake
triger: 10 seconds
lease: 0 s
retention: 10
libraries:
  - glob:
      include: pipline.py
  - glob:
      include: "*.py"
  - glob:
      includes: x
  - glob:
      include: sql/**
configuration:
  a: [1]
"""
    path = write(tmp_path, spec, files=("pipeline.py", "sql/notes.md", "sql/.hidden"))
    assert sorted(problems(path), key=lambda p: tuple(int(n) for n in p[1].split(":")[1:])) == [
        ("PROJECT_UNKNOWN_FIELD", "anabranch.yml:1:1", "nmae: unknown field"),
        (
            "PROJECT_BAD_VALUE",
            "anabranch.yml:3:10",
            "storage: s3://bucket/lake is not a folder this version can write to",
        ),
        ("PROJECT_UNKNOWN_FIELD", "anabranch.yml:4:1", "triger: unknown field"),
        ("PROJECT_BAD_VALUE", "anabranch.yml:5:8", "lease: must be longer than nothing, not '0 s'"),
        (
            "PROJECT_BAD_VALUE",
            "anabranch.yml:6:12",
            'retention: "10" has no unit: write "10 seconds", "10 minutes", "10 hours" or "10 days"',
        ),
        ("PROJECT_NO_FILES", "anabranch.yml:9:16", f'"pipline.py" matches no file in {tmp_path}'),
        ("PROJECT_BAD_GLOB", "anabranch.yml:11:16", '"*.py" is not a pattern that a library may have'),
        ("PROJECT_MISSING_FIELD", "anabranch.yml:13:7", "libraries.2.glob.include: missing field"),
        ("PROJECT_UNKNOWN_FIELD", "anabranch.yml:13:7", "libraries.2.glob.includes: unknown field"),
        (
            "PROJECT_FILE_KIND",
            "anabranch.yml:15:16",
            "sql/notes.md is neither a .py nor a .sql file",
        ),
        ("PROJECT_BAD_VALUE", "anabranch.yml:17:6", "configuration.a: must be text, not [1]"),
    ]


def test_problems_of_what_the_fields_mean(tmp_path: Path) -> None:
    spec = """\
name: shop
storage: s3://bucket/lake
database: a
schema: b
libraries:
  - glob: {include: pipline.py}
  - glob: {include: "*.py"}
  - glob: {include: sql/**}
  - glob: {include: sql}
  - glob: {include: pipeline.py}
"""
    path = write(tmp_path, spec, files=("pipeline.py", "sql/a.sql", "sql/notes.md", "sql/.hidden"))
    examined = examine_project(path)
    found = [(p.code, p.where.line if p.where else 0, p.where.column if p.where else 0) for p in examined.problems]
    assert sorted(found, key=lambda p: p[1:]) == [
        ("PROJECT_BAD_VALUE", 2, 10),
        ("PROJECT_BAD_VALUE", 4, 9),
        ("PROJECT_NO_FILES", 6, 21),
        ("PROJECT_BAD_GLOB", 7, 21),
        ("PROJECT_FILE_KIND", 8, 21),
        ("PROJECT_BAD_GLOB", 9, 21),
    ]
    by_code = {p.code: p for p in examined.problems}
    assert by_code["PROJECT_NO_FILES"].hint == 'did you mean "pipeline.py"?'
    assert any("sql/notes.md is neither" in p.message for p in examined.problems)
    assert examined.project is not None
    assert [file.name for file in examined.project.files] == ["a.sql", "pipeline.py"], (
        "what is right can still be looked at"
    )
    with pytest.raises(ProjectErrors) as raised:
        read_project(path)
    assert raised.value.exit_code == 2
    assert len(raised.value.problems) == 6
    assert all(problem.hint for problem in raised.value.problems)


def test_our_fields_in_the_file_of_spark(tmp_path: Path) -> None:
    path = write(tmp_path, "name: x\nledger: a.db\nlibraries: [{glob: {include: pipeline.py}}]\n", "spark-pipeline.yml")
    assert problems(path) == [
        ("PROJECT_MISSING_FIELD", "spark-pipeline.yml:1:1", "storage: missing field"),
        ("PROJECT_UNKNOWN_FIELD", "spark-pipeline.yml:2:1", "ledger: unknown field"),
    ]
    assert "rename this file" in str(examine_project(path).problems[1].hint)


def test_nothing_to_run(tmp_path: Path) -> None:
    assert problems(write(tmp_path, "name: x", files=())) == [
        ("PROJECT_NO_FILES", "anabranch.yml:1:1", "no library files")
    ]


def test_the_nearest_spec_is_found_ours_first(tmp_path: Path) -> None:
    deep = tmp_path / "a/b"
    deep.mkdir(parents=True)
    write(tmp_path, "name: x")
    assert find_spec(deep) == tmp_path / "anabranch.yml"
    spark = write(tmp_path / "a", SPARK_SPEC, "spark-pipeline.yaml")
    assert find_spec(deep) == spark
    ours = write(tmp_path / "a", "name: y", "anabranch.yaml")
    assert find_spec(deep) == ours
    assert read_project(deep).name == "y"
    write(tmp_path / "a", "name: z", "anabranch.yml")
    with pytest.raises(ProjectError) as raised:
        find_spec(deep)
    assert raised.value.code == "PROJECT_TWO_SPECS"


def test_no_spec(tmp_path: Path) -> None:
    with pytest.raises(ProjectError) as raised:
        find_spec(tmp_path)
    assert raised.value.code == "PROJECT_NOT_FOUND"
    assert "anabranch init" in str(raised.value.hint)
    with pytest.raises(ProjectErrors) as several:
        read_project(tmp_path / "none.yml")
    assert [p.code for p in several.value.problems] == ["PROJECT_NOT_FOUND"]
