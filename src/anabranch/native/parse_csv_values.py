"""Texts of CSV as values of a type, where Java and Arrow are certain to read them alike."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.native.parse_finish import either, finish
from anabranch.native.parse_schema import Node

_WHOLE = {"byte": (-(2**7), 2**7 - 1), "short": (-(2**15), 2**15 - 1), "integer": (-(2**31), 2**31 - 1)}
_WHOLE |= {"long": (-(2**63), 2**63 - 1)}

#: Too short to be out of range.
_INTEGER = r"^-?([0-9]{1,18}|[0-8][0-9]{18})$"
_REAL = r"^-?[0-9]{1,20}(\.[0-9]{1,20})?$"


def value_of(texts: pa.StringArray, node: Node, *, utc: bool) -> tuple[pa.Array, np.ndarray | None]:
    """The texts as values, and where these are not certain to be Spark's (None: nowhere)."""
    if node.kind == "string":
        return texts, None
    if node.kind == "boolean":
        return _booleans(texts)
    if node.kind in _WHOLE:
        return _whole(texts, node)
    if node.kind in ("float", "double"):
        return _plain(texts, node.type, _REAL)
    if node.kind.startswith("decimal("):
        before, scale = node.type.precision - node.type.scale, node.type.scale
        behind = rf"(\.[0-9]{{1,{scale}}})?" if scale else ""
        return _plain(texts, node.type, rf"^-?[0-9]{{1,{before}}}{behind}$" if before else r"^\b$")
    return finish(texts, node, utc=utc)


def _booleans(texts: pa.StringArray) -> tuple[pa.Array, np.ndarray | None]:
    small = pc.ascii_lower(texts)
    true = pc.equal(small, "true")
    return true, _where(pc.or_(true, pc.equal(small, "false")))


def _whole(texts: pa.StringArray, node: Node) -> tuple[pa.Array, np.ndarray | None]:
    numbers, odd = _digits(texts)
    if node.kind == "long":
        return numbers, odd
    least, most = _WHOLE[node.kind]
    fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, most))
    wide = _where(fits)
    if wide is not None:
        numbers = pc.if_else(fits, numbers, pa.scalar(None, numbers.type))
    return numbers.cast(node.type), either(odd, wide)


def _digits(texts: pa.StringArray) -> tuple[pa.Array, np.ndarray | None]:
    letters = _letters(texts)
    if len(letters) and (((letters >= ord("0")) & (letters <= ord("9"))) | (letters == ord("-"))).all():
        try:
            return texts.cast(pa.int64()), None
        except pa.ArrowInvalid:  # too large, or a sign in the wrong place
            pass
    return _plain(texts, pa.int64(), _INTEGER)


def _letters(texts: pa.StringArray) -> np.ndarray:
    """All bytes of the texts."""
    _, places, data = texts.buffers()
    ends = np.frombuffer(places, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]


def _plain(texts: pa.StringArray, kind: pa.DataType, pattern: str) -> tuple[pa.Array, np.ndarray | None]:
    """Those in a form as the type, the others null; and where others are."""
    plain = pc.match_substring_regex(texts, pattern)
    odd = _where(plain)
    if odd is not None:
        texts = pc.if_else(plain, texts, pa.scalar(None, texts.type))
    return texts.cast(kind), odd


def _where(plain: pa.BooleanArray) -> np.ndarray | None:
    """Where something is false; of null that is not known, nor asked."""
    odd: np.ndarray = ~pc.fill_null(plain, True).to_numpy(zero_copy_only=False)
    return odd if odd.any() else None
