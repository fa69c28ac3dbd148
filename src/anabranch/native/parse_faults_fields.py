"""Fields with values of the wrong type, in many documents at once: the values are replaced by null in the text.

For a value without the type of its field Spark gives null, and keeps the other fields. So a document with null there is
read as Spark reads this one. The text is changed only where it is certain which part of it is the value: the field
is where the schema has it (DuckDB says so), its name is in the document once and not written with escapes, and what
follows is a plain text, a number or a word. That the rest is sound is found out by the reader.
"""

from __future__ import annotations

import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.parse_guard import look
from anabranch.native.parse_misfits import Condition, query

#: Stands in a pattern and between quotes as it is, and is written with escapes only as `\uXXXX`.
_NAME = re.compile(r"[A-Za-z0-9_-]+")

_TEXT, _NUMBER, _WORD = r'"[^"\\]*"', "-?[0-9][-+.0-9eE]*", "true|false"

#: By the kind of the field: how a value of another one begins, and which of these are replaced. Space is blanks only:
#: documents with other space are not read in the quick way.
_INTEGER = ("[^-0-9n ]|-?[0-9]+[.eE]|-?[0-9]{%d}", f"{_TEXT}|{_NUMBER}|{_WORD}")
_OTHERS = {
    "boolean": ("[^tfn ]", f"{_TEXT}|{_NUMBER}"),
    "short": (_INTEGER[0] % 5, _INTEGER[1]),
    "integer": (_INTEGER[0] % 10, _INTEGER[1]),
    "long": (_INTEGER[0] % 19, _INTEGER[1]),
    "float": ("[^-0-9n ]", f"{_TEXT}|{_WORD}"),
    "double": ("[^-0-9n ]", f"{_TEXT}|{_WORD}"),
    "struct": ("[^{n ]", f"{_TEXT}|{_NUMBER}|{_WORD}"),
    "array": (r"[^\[n ]", f"{_TEXT}|{_NUMBER}|{_WORD}"),
}

#: Texts that may be numbers to Spark.
_NUMBERS_AS_TEXT = '(?:NaN|INF|Infinity)"'


def can_mend(condition: Condition) -> bool:
    """Whether values of this kind can be replaced at all."""
    return not condition.many and condition.kind in _OTHERS and _NAME.fullmatch(condition.name) is not None


def mended(
    texts: pa.Array, condition: Condition, connection: duckdb.DuckDBPyConnection
) -> tuple[np.ndarray, pa.Array] | None:
    """The rows that have a value of the wrong type in a field, and their texts with null for it. None: there are none.

    The texts are known to have no control characters.
    """
    begins, values = _OTHERS[condition.kind]
    name = f'"{condition.name}"'
    rows = np.flatnonzero(pc.match_substring_regex(texts, f"{name} *: *(?:{begins})").to_numpy(zero_copy_only=False))
    if not len(rows):
        return None
    some = texts.take(pa.array(rows))
    clear = pc.equal(pc.count_substring(some, name), 1)
    clear = pc.and_not(clear, pc.match_substring(some, "\\u"))
    if condition.kind in ("float", "double"):
        clear = pc.and_not(clear, pc.match_substring_regex(some, _NUMBERS_AS_TEXT))
    misfit = look(connection, query({condition}, checked=False), some)["misfit"] & clear.to_numpy(zero_copy_only=False)
    rows, some = rows[misfit], some.filter(pa.array(misfit))
    again = pc.replace_substring_regex(
        some, f"([{{,] *{name} *: *)(?:{values})( *[,}}])", r"\1null\2", max_replacements=1
    )
    changed = pc.not_equal(again, some)
    rows = rows[changed.to_numpy(zero_copy_only=False)]
    return (rows, again.filter(changed)) if len(rows) else None
