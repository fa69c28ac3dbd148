"""Secrets: where they are looked up, and that whatever was looked up is taken out of what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import anabranch
from anabranch.cli.output import JsonOutput, TextOutput
from anabranch.core import hidden as hiding
from anabranch.core.events import ChannelFailed
from anabranch.core.hidden import hidden, hide, keep_hidden
from anabranch.core.secrets import has_secret, only_references, reveal, secret
from anabranch.errors import ProjectError, ProjectErrors, SinkError
from anabranch.load.project import read_project

pytestmark = pytest.mark.core


@pytest.fixture(autouse=True)
def nothing_known_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test keeps hidden must not be missing in what others print."""
    monkeypatch.setattr(hiding, "_forms", {})


def test_where_they_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PW", "from-the-environment")
    (tmp_path / "pw").write_text("from-a-file\nand not this\n")
    text = f"${{env:SHOP_PW}} and ${{file:{tmp_path}/pw}}, {{env:SHOP_PW}} is none"
    assert reveal(text) == "from-the-environment and from-a-file, {env:SHOP_PW} is none"
    assert hide(reveal(text)) == "*** and ***, {env:SHOP_PW} is none"
    assert has_secret(text)
    assert reveal("nothing to look up") == "nothing to look up"


def test_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    import keyring
    from keyring.backend import KeyringBackend

    class InMemory(KeyringBackend):
        priority = 1  # type: ignore[assignment]
        kept = {("db/main", "loader"): "from-the-keyring"}  # noqa: RUF012

        def get_password(self, service: str, username: str) -> str | None:
            return self.kept.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            self.kept[service, username] = password

    before = keyring.get_keyring()
    keyring.set_keyring(InMemory())
    try:
        assert reveal("${keyring:db/main/loader}") == "from-the-keyring"
        assert hide("from-the-keyring!") == "***!"
        with pytest.raises(ProjectError, match='no password of "nobody" for "db/main"'):
            reveal("${keyring:db/main/nobody}")
    finally:
        keyring.set_keyring(before)


@pytest.mark.parametrize(
    "reference", ["${env:NOT_SET_AT_ALL}", "${env:EMPTY}", "${file:/no/such/file}", "${file:/}", "${keyring:a/b}"]
)
def test_one_that_is_missing_is_told_with_its_reference(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    with pytest.raises(ProjectError) as missing:
        reveal(f"x{reference}")
    assert missing.value.code == "SECRET_MISSING"
    assert missing.value.message.startswith(reference)
    assert missing.value.hint


def test_for_use_in_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PW", "in-code-77")
    assert anabranch.secret is secret
    assert secret("env:SHOP_PW") == "in-code-77"
    assert hide("in-code-77") == "***"
    with only_references():  # a project that is only looked at needs no secrets
        assert secret("env:NOT_SET_AT_ALL") == "${env:NOT_SET_AT_ALL}"
    for wrong in ("SHOP_PW", "${env:SHOP_PW}", "vault:x"):
        with pytest.raises(ProjectError) as refused:
            secret(wrong)
        assert refused.value.hint


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=200)
@given(st.text(min_size=4, max_size=30))
@example("a\"b'c\\d/e f+g%h")
@example("ünï-cödé-☃")
def test_no_way_to_write_it_gives_it_away(value: str) -> None:
    hiding._forms.clear()
    keep_hidden(value)
    written = [value, repr(value), json.dumps(value), json.dumps([value], ensure_ascii=False)]
    written += [f"https://h/?q={way(value)}&x=1" for way in (quote, quote_plus, lambda v: quote(v, safe=""))]
    for text in written:
        assert value not in hide(text) or value in "***"
        assert "***" in hide(text)
        error = SinkError("CODE", text, hint=text, details={"said": [text]})
        assert "***" in str(error)
        assert "***" in str(error.hint)
        assert error.details == {"said": [hide(text)]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:pw@h/db", "postgresql://u:***@h/db"),
        ("postgresql+psycopg://u:p@ss@h:5432/db?x=1", "postgresql+psycopg://u:***@h:5432/db?x=1"),
        ('cannot open "amqp://:pw@h", sorry', 'cannot open "amqp://:***@h", sorry'),
        ("jdbc:postgresql://h/db?user=u&password=pw&ssl=1", "jdbc:postgresql://h/db?user=u&password=***&ssl=1"),
        ("jdbc:sqlserver://h;user=u;password=pw;x=1", "jdbc:sqlserver://h;user=u;password=***;x=1"),
        ("https://h/hook?token=abc.def", "https://h/hook?token=***"),
        ("postgresql://u:${env:PW}@h/db?password=${file:/x}", "postgresql://u:${env:PW}@h/db?password=${file:/x}"),
        ("https://h:8080/a@b and s3://bucket/x=1", "https://h:8080/a@b and s3://bucket/x=1"),
        ("postgresql://u@h/db, tokens=3", "postgresql://u@h/db, tokens=3"),
    ],
)
def test_passwords_in_addresses(text: str, shown: str) -> None:
    assert hide(text) == shown
    assert hide(shown) == shown


def test_what_is_too_short_to_be_one_is_left_alone() -> None:
    keep_hidden("a")
    keep_hidden("")
    assert hide("a banana") == "a banana"


def test_names_of_fields_stay() -> None:
    keep_hidden("rows")
    assert hidden({"rows": ("3 rows", 4, None, {"x": "rows"})}) == {"rows": ("3 ***", 4, None, {"x": "***"})}


def test_everything_that_is_printed_or_kept(capsys: pytest.CaptureFixture[str]) -> None:
    keep_hidden('tulip "77"')
    event = ChannelFailed("c", "CODE", 'no entry with tulip "77"')
    problems = ProjectErrors([ProjectError("CODE", 'tulip "77"', hint='tulip "77"')])
    assert (event.message, event.as_record()["message"]) == ("no entry with ***",) * 2
    for out in (TextOutput(), JsonOutput()):
        out.show({"a": 'tulip "77"'})
        out.show([{"a": ['tulip "77"']}])
        out.note('tulip "77"')
        out.error(problems)
        out.event(event.as_record(), [('tulip "77"', "")])
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert "***" in text
        assert "tulip" not in text


def test_rows_of_tables_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    keep_hidden("tulip")
    for out in (TextOutput(), JsonOutput()):
        out.rows([{"flower": "tulip", "at": "https://a:b@h/"}])
        assert "tulip" in (said := capsys.readouterr().out)
        assert "a:b@h" in said


def test_whoever_hides_elsewhere_is_told_of_new_ones() -> None:
    keep_hidden("before-1")
    told: list[tuple[str, ...]] = []
    watcher = told.append
    hiding.watch(watcher)
    keep_hidden("after-22")
    keep_hidden("after-22")
    hiding.unwatch(watcher)
    keep_hidden("after-that")
    assert told == [("before-1",), ("before-1", "after-22")]


def test_the_project_keeps_the_reference_and_the_ledger_is_opened_with_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from anabranch.engine.opened import open_project

    (tmp_path / "anabranch.yml").write_text("name: shop\nledger: ${env:SHOP_LEDGER}\n")
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "a.py").write_text("")
    project = read_project(tmp_path)
    assert project.ledger == "${env:SHOP_LEDGER}"
    with pytest.raises(ProjectError), open_project(project, create=True):
        pass
    monkeypatch.setenv("SHOP_LEDGER", str(tmp_path / "state" / "ledger.db"))
    with open_project(project, create=True):
        assert (tmp_path / "state" / "ledger.db").exists()
