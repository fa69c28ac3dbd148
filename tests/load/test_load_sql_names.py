from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.load.sql_names import HOLE, sql_names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM a", ["a"]),
        ("select * from a x join b as y on x.i = y.i left outer join c using (i, j)", ["a", "b", "c"]),
        ("SELECT * FROM a, b AS x, (SELECT * FROM c) y, d WHERE e IN (SELECT f FROM g), h", ["a", "b", "c", "d", "g"]),
        ("SELECT * FROM cat.db.`t`", ["cat.db.t"]),
        ("SELECT * FROM `a b`.`c``d`", ["a b.c`d"]),
        ("SELECT * FROM `a.b`.c", ["`a.b`.c"]),
        ("SELECT * FROM STREAM(a) JOIN STREAM b JOIN stream `c`", ["a", "b", "c"]),
        ("SELECT * FROM stream WHERE x", ["stream"]),
        ("SELECT * FROM stream AS s", ["stream"]),
        ("SELECT * FROM stream", ["stream"]),
        ("SELECT * FROM (a JOIN b ON a.x = b.x)", ["a", "b"]),
        ("SELECT * FROM ((SELECT * FROM a) UNION (SELECT * FROM b))", ["a", "b"]),
        ("WITH x AS (SELECT * FROM a), y (p, q) AS (SELECT * FROM x JOIN b) SELECT * FROM x, y", ["a", "b"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM A", ["a"]),
        ("WITH RECURSIVE r AS (SELECT 1 UNION ALL SELECT * FROM r JOIN b) SELECT * FROM r", ["b"]),
        ("SELECT * FROM (WITH x AS (SELECT 1) SELECT * FROM x) JOIN x", ["x"]),
        ("SELECT 'FROM x', \"FROM y\", r'\\' /* FROM z /* FROM n */ FROM m */ FROM a -- FROM w", ["a"]),
        ("SELECT 'it''s FROM x', 'a\\' FROM y' FROM b", ["b"]),
        ("SELECT extract(YEAR FROM at), trim(BOTH 'x' FROM y), substring(z FROM 2) FROM a", ["a"]),
        ("SELECT a IS NOT DISTINCT FROM b FROM c", ["c"]),
        ("SELECT * FROM range(10) JOIN explode(x) JOIN a", ["a"]),
        ("SELECT * FROM a LATERAL VIEW explode(m) t AS k, v WHERE k", ["a"]),
        ("SELECT * FROM a, LATERAL (SELECT * FROM b) JOIN LATERAL explode(x)", ["a", "b"]),
        ("SELECT * FROM VALUES (1, 2), (3, 4) AS t(a, b)", []),
        ("SELECT * FROM delta.`/tmp/x` JOIN parquet.`s3://b/c` JOIN delta.real", ["delta.real"]),
        ("SELECT * FROM {frame} JOIN a", ["a"]),
        ("SELECT * FROM IDENTIFIER('db.x') JOIN a", ["db.x", "a"]),
        ("TABLE a", ["a"]),
        ("SELECT 1 UNION ALL TABLE a", ["a"]),
        ("SELECT * FROM f(TABLE(a))", ["a"]),
        ("FROM a |> WHERE x > 1 |> JOIN b USING (i) |> SELECT c, d", ["a", "b"]),
        ("FROM a SELECT x, y", ["a"]),
        ("SELECT * FROM a TABLESAMPLE (5 ROWS) VERSION AS OF 3, b PIVOT (sum(x) FOR y IN (1, 2))", ["a", "b"]),
        ("SELECT * FROM a; SELECT * FROM b", ["a", "b"]),
        ("SELECT * FROM straße JOIN 表", ["straße", "表"]),
        ("SELECT * EXCEPT (a, b), c FROM t GROUP BY x, y ORDER BY z, w", ["t"]),
        ("SELECT * FROM a AS t(x, y), b", ["a", "b"]),
        ("", []),
        ("FROM", []),
        ("SELECT * FROM (((", []),
        ("WITH", []),
        ("WITH x AS", []),
    ],
)
def test_names(text: str, names: list[str]) -> None:
    found = sql_names(text)
    assert (list(found.names), found.known) == (names, True)


@pytest.mark.parametrize(
    ("text", "names", "known"),
    [
        (f"SELECT * FROM a WHERE day = '{HOLE}'", ["a"], True),
        (f"SELECT * FROM a -- {HOLE}", ["a"], True),
        (f"SELECT * FROM raw_{HOLE} JOIN b", ["b"], False),
        (f"SELECT * FROM {HOLE}.a JOIN `{HOLE}`", [], False),
        (f"SELECT * FROM a WHERE {HOLE}", ["a"], False),
        ("SELECT * FROM IDENTIFIER(:name) JOIN b", ["b"], False),
        (f"SELECT * FROM IDENTIFIER('x{HOLE}')", [], False),
    ],
)
def test_unknown_parts(text: str, names: list[str], known: bool) -> None:
    found = sql_names(text)
    assert (list(found.names), found.known) == (names, known)


SOUP = st.lists(
    st.sampled_from(
        [
            "SELECT",
            "*",
            "FROM",
            "JOIN",
            "WITH",
            "AS",
            "(",
            ")",
            ",",
            ";",
            ".",
            "'",
            '"',
            "`",
            "--",
            "/*",
            "*/",
            "|",
            ">",
            "stream",
            "lateral",
            "values",
            "table",
            "identifier",
            "a",
            "b",
            "1",
            "\n",
        ]
    )
    | st.text(max_size=3),
    max_size=40,
).map(" ".join)


@given(SOUP)
def test_no_text_makes_it_fail(text: str) -> None:
    found = sql_names(text)
    assert len(set(found.names)) == len(found.names)


NAME = st.from_regex(r"t_[a-z0-9]{1,5}", fullmatch=True)


@st.composite
def queries(draw: st.DrawFn, depth: int = 2) -> tuple[str, list[str]]:
    """A query and the tables planted in it, in order."""
    names: list[str] = []

    def relation() -> str:
        if depth and draw(st.booleans()):
            text, inner = draw(queries(depth=depth - 1))
            names.extend(inner)
            return f"({text}) q"
        name = draw(NAME)
        names.append(name)
        form = draw(
            st.sampled_from(
                [
                    "{0}",
                    "`{0}`",
                    "STREAM({0})",
                    "STREAM {0}",
                    "{0} AS x",
                    "/* FROM no */ {0}",
                    "{0} TABLESAMPLE (1 ROWS)",
                ]
            )
        )
        return form.format(name)

    text = f"SELECT a, trim('x' FROM b), 'FROM no' FROM {relation()}"
    for _ in range(draw(st.integers(0, 3))):
        glue = draw(st.sampled_from([", ", "\nLEFT JOIN ", " JOIN -- FROM no\n", " CROSS JOIN "]))
        text += f"{glue}{relation()}"
        text += " ON a = b" if "JOIN" in glue else ""
    text += draw(st.sampled_from(["", " WHERE a IS DISTINCT FROM b", " GROUP BY a, b ORDER BY c, d"]))
    if depth and draw(st.booleans()):
        body, inner = draw(queries(depth=depth - 1))
        text, names = f"WITH c AS ({body}) {text} UNION SELECT * FROM c", [*inner, *names]
    return text, names


@given(queries())
def test_planted_names_are_found_and_no_others(query: tuple[str, list[str]]) -> None:
    text, planted = query
    found = sql_names(text)
    assert list(found.names) == list(dict.fromkeys(planted))
    assert found.known
