"""What the documentation says is so: commands, options, links, Python blocks, outputs, the reference pages."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

import anabranch
from anabranch import errors, pipelines, read
from anabranch.cli.explain import all_texts
from anabranch.cli.main import main
from anabranch.core import crash
from anabranch.load.durations import parse_duration
from anabranch.load.project import AnabranchSpec

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(Path(__file__).parent))
import cli_reference  # noqa: E402  beside this file, and a script as well
import sinks_reference  # noqa: E402

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
SOURCE = Path(anabranch.__file__).parent
#: More places that name commands.
TEXTS = [
    *PAGES,
    SOURCE / "error_codes.md",
    *sorted((SOURCE / "cli" / "templates").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
]
#: Capitals in code that are no error codes.
VARIABLES = {"ANABRANCH_CACHE", "ANABRANCH_ENV", "ANABRANCH_CRASH", "JAVA_HOME", "POINTS", "PGPASSWORD", "PGPASSFILE"}
#: Verbs whose lines are executed here: they need no JVM and change nothing that a later line relies on.
LIGHT = {"check", "plan --static", "status", "epochs", "show", "sql", "recover", "vacuum"}
#: Followed from top to bottom by a test of its own, in a project of its own.
FOLLOWED = {ROOT / "docs" / "tutorials" / "medallion.md"}


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*languages: str) -> list[Block]:
    return [b for page in TEXTS for b in blocks_of(page) if not languages or b.language in languages]


def blocks_of(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page; one without a language in a template's README is for the shell."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    text = page.read_text(encoding="utf-8")
    for match in fence.finditer(text):
        language = match[1] or ("sh" if "templates" in page.parts else "text")
        yield Block(page, text[: match.start()].count("\n") + 2, language, match[2])


def prose(page: Path) -> str:
    """A page without its fenced blocks, on one line per paragraph."""
    bare = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"(?<!\n)\n(?!\n|[-|#>\d])", " ", bare)


def shell_lines(block: Block) -> Iterator[list[str]]:
    """The commands of a block, without variables set before them; of none that is not for the shell."""
    for line in block.text.splitlines() if block.language == "sh" else ():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words:
            yield words


def commands() -> list[tuple[str, list[str]]]:
    """Every `anabranch ...` of the texts: in shell blocks, and between backticks."""
    found = [(str(b), words) for b in blocks("sh") for words in shell_lines(b) if words[0] == "anabranch"]
    for page in TEXTS:
        for text in re.findall(r"`(anabranch(?: [^`]*)?)`", prose(page)):
            found.append((f"{page.relative_to(ROOT)}: {text}", shlex.split(text)))
    return found


def complaint(words: list[str]) -> str | None:
    """What is wrong with a command, by typer's own account of it."""
    known = cli_reference.commands()
    verb, at = next(((w, i) for i, w in enumerate(words[1:], 1) if not w.startswith("-")), ("", 0))
    if verb.isupper():  # a word that stands for any verb
        return None
    if verb not in known:
        return f'no verb "{verb}"'
    allowed = {o for p in (*known[""].params, *known[verb].params) for o in (*p.opts, *p.secondary_opts)}
    unknown = [w for w in words[1:] if w.startswith("-") and w.partition("=")[0] not in {*allowed, "--help"}]
    if unknown:
        return f"no option {unknown[0]}"
    before = [w for w in words[1:at] if not w.startswith("-")]
    return f"unexpected {before[0]}" if before else None


def test_every_command_names_a_verb_and_options_that_exist() -> None:
    assert len(commands()) > 60
    assert [(place, problem) for place, words in commands() if (problem := complaint(words))] == []


def test_every_command_in_a_hint_or_message_exists() -> None:
    """A way out that is no way is worse than none."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for text in re.findall(r"`(anabranch [^`{}\n]*)`", path.read_text(encoding="utf-8")):
            if problem := complaint(shlex.split(text)):
                found.append((path.name, text, problem))
    assert found == []


def test_a_wrong_command_would_be_found() -> None:
    assert complaint(["anabranch", "rum"]) == 'no verb "rum"'
    assert complaint(["anabranch", "run", "--sideways"]) == "no option --sideways"
    assert complaint(["anabranch", "show", "t", "--at", "3", "--json"]) is None


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {w[1] for b in blocks("sh") for w in shell_lines(b) if w[0] == "make" and len(w) > 1}
    named |= {name for page in PAGES for name in re.findall(r"`make ([a-z]+)[^`]*`", prose(page))}
    assert {"demo", "test", "check", "bench", "soak"} <= named <= targets


def test_every_relative_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"\n", " ", prose(page))):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            there = (page.parent / path).resolve() if path else page
            if not there.is_file() or (anchor and anchor not in anchors(there)):
                broken.append((str(page.relative_to(ROOT)), target))
    assert broken == []


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}


def test_every_page_is_reached_from_the_index() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose(page))
        waiting += [(page.parent / link).resolve() for link in links if "://" not in link]
    assert [str(p.relative_to(ROOT)) for p in PAGES if p not in reached] == []


def test_every_error_code_that_is_named_exists() -> None:
    known = {*all_texts(), *VARIABLES}
    named = {
        (page.name, code) for page in PAGES for code in re.findall(r"`([A-Z]+(?:_[A-Z]+)+)`", page.read_text("utf-8"))
    }
    assert {(page, code) for page, code in named if code not in known} == set()


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_blocks(
    block: Block, quickstart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All compile; pipelines pass `check`; what needs no JVM is executed, and prints what its comments say."""
    code = compile(block.text, str(block), "exec")
    if block.text.startswith("# transformations/"):
        monkeypatch.chdir(tmp_path)
        file = tmp_path / block.text.splitlines()[0].removeprefix("# ")
        file.parent.mkdir(parents=True)
        file.write_text(block.text)
        (tmp_path / "anabranch.yml").write_text("name: example\n")
        assert main(["check"]) == 0, capsys.readouterr().err
    elif "pyspark" not in block.text and "stream" not in code.co_names:  # a stream needs Spark too
        monkeypatch.chdir(quickstart.parent)
        exec(code, {"__name__": "example"})
        printed = capsys.readouterr().out.splitlines()
        promised = re.findall(r"^\s*print\(.*\)  # (.*)$", block.text, flags=re.MULTILINE)
        assert [line for line in promised if line not in printed] == []


def light_commands() -> list[tuple[Block, list[str], str]]:
    """Commands that are executed, each with the output shown for it."""
    found = []
    for page in (page for page in PAGES if page not in FOLLOWED):
        for block, following in pairwise([*blocks_of(page), Block(page, 0, "", "")]):
            lines = [words for words in shell_lines(block) if words[0] == "anabranch"]
            shown = following.text if following.language == "text" else ""
            ending = [w for w in lines if not {"--watch", "--follow"} & {*w}]
            light = [w for w in ending if w[1] in LIGHT or " ".join(w[1:3]) in LIGHT]
            found += [(block, words, shown if words == lines[-1] else "") for words in light]
    return found


@pytest.mark.parametrize(("block", "words", "shown"), light_commands(), ids=lambda v: str(v)[:60].replace("\n", " "))
def test_commands_that_need_no_jvm_run(
    block: Block,
    words: list[str],
    shown: str,
    quickstart: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(quickstart)
    assert main(words[1:]) == 0, capsys.readouterr().err
    said = capsys.readouterr().out.strip()
    if words[1] == "sql" and "--json" not in words and shown:
        # The reader may stand at any epoch by then; the page must show what one of them has.
        answers = {said} | {run_at(words, epoch, capsys) for epoch in (0, 1, 2)}
        assert any(same(answer, shown[-len(answer) - 1 :]) for answer in answers), f"{block}: {said}"
    if words[1] in ("check", "plan") and shown:
        assert said == shown.strip()


def run_at(words: list[str], epoch: int, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([*words[1:], "--at", str(epoch)]) == 0
    return capsys.readouterr().out.strip()


def same(answer: str, shown: str) -> bool:
    return answer.split() == shown.split()


def test_the_promise_is_the_same_everywhere() -> None:
    marked = re.compile(r"<!-- promise -->\n(.*?)<!-- /promise -->", re.DOTALL)
    match = marked.search((ROOT / "docs/concepts/the-promise.md").read_text(encoding="utf-8"))
    assert match is not None
    assert match[1].count("\n") >= 4
    assert f"## The promise\n\n{match[1]}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    written = cli_reference.TARGET.read_text(encoding="utf-8")
    assert written == cli_reference.render(), "write it anew: python tests/docs/cli_reference.py"
    for name, command in cli_reference.commands().items():
        assert f"## {name}" in written
        assert [o for p in cli_reference.options(command) for o in p.opts if f"`{o}`" not in written] == []


def test_the_reference_of_the_formats_is_up_to_date() -> None:
    written = sinks_reference.TARGET.read_text(encoding="utf-8")
    assert written == sinks_reference.render(), "write it anew: python tests/docs/sinks_reference.py"
    assert [name for name in sinks_reference.OURS if f"\n## {name}\n" not in written] == []


def table(page: str, first: str) -> dict[str, list[str]]:
    """The rows of the table whose head begins with `first`, by their first cell without backticks."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    _, _, rest = text.partition(f"\n| {first} |")
    assert rest, f"{page} has no table of {first}"
    rows = [line.strip("| ").split(" | ") for line in rest.splitlines()[2:]]
    ends = next((i for i, row in enumerate(rows) if row == [""]), len(rows))
    return {row[0].strip("` "): [cell.strip() for cell in row[1:]] for row in rows[:ends]}


def test_the_project_file_page_has_every_key_with_its_default() -> None:
    rows = table("reference/project-file.md", "key")
    fields = {field.alias or name: field for name, field in AnabranchSpec.model_fields.items()}
    assert set(rows) == set(fields)
    for key, field in fields.items():
        said = rows[key][0].strip("`")
        if field.is_required():
            assert said == "required"
        elif isinstance(field.default, float):
            assert parse_duration(said) == field.default
        elif isinstance(field.default, str):
            assert said == field.default


def test_the_python_page_has_every_name_and_argument() -> None:
    page = (ROOT / "docs/reference/python-api.md").read_text(encoding="utf-8")
    for name in pipelines.__all__:
        _, _, section = page.partition(f"\n### {name}\n")
        assert section, f"no section for {name}"
        words = set(re.findall(r"\w+", section.partition("\n### ")[0]))
        function: Callable[..., object] = getattr(pipelines, name)
        named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
        assert [argument for argument in named if argument not in words] == []
    members = [name for name in dir(read.Cut) if not name.startswith("_")]
    documented = {re.match(r"\w+", cell)[0] for cell in table("reference/python-api.md", "member")}  # type: ignore[index]
    assert documented == set(members)


def test_the_exit_codes_are_those_of_the_errors() -> None:
    families = [f for f in vars(errors).values() if isinstance(f, type) and issubclass(f, errors.AnabranchError)]
    assert {str(f.exit_code) for f in families} <= set(table("reference/exit-codes.md", "code"))


def test_every_crash_point_is_told_in_its_order() -> None:
    assert tuple(table("concepts/life-of-an-epoch.md", "crash point")) == crash.POINTS


def test_every_decision_has_its_four_parts() -> None:
    for page in (ROOT / "docs/decisions").glob("0*.md"):
        headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert {"Context", "Choice", "Rejected", "Measured"} <= set(headings), page.name
