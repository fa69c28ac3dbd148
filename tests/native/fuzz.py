"""Looks for records that the native pass reads differently from Spark: `make fuzz SECONDS=60`.

Random schemas, random and mutated documents, blocks of regular ones, thousands in each job of Spark. A difference is
made as small as can be and written to `found/`, where a test replays it ever after. Ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from anabranch.native.parse import refused
from anabranch.native.parse_regular import Regular
from native import random_expressions
from native.csv_against_spark import lines_differ
from native.json_against_spark import Case, Difference, compared
from native.json_documents import by_hand, faulty_document, random_document, random_schema
from native.regular_documents import Block, regular_schema

FOUND = Path(__file__).parent / "found"

SCHEMAS = 24
DOCUMENTS = 400

#: Documents of one block that are drawn alike, and that the parser is given at once.
ALIKE = 10

OPTIONS: list[dict[str, str]] = [
    {},
    {},
    {"mode": "FAILFAST"},
    {"columnNameOfCorruptRecord": "c"},
    {"allowComments": "true", "allowUnquotedFieldNames": "true", "allowNumericLeadingZeros": "true"},
    {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false", "allowUnquotedControlChars": "true"},
    {"timeZone": "America/New_York"},
]


def random_cases(dice: random.Random) -> list[Case]:
    """As many as go into one job."""
    cases = []
    hostile = by_hand()
    while len(cases) < SCHEMAS:
        if dice.random() < 0.5:
            case = regular_case(dice)
            if not refused(case.shape):
                cases.append(case)
            continue
        schema = random_schema(dice)
        drawn = dice.choice((random_document, faulty_document))
        documents = [drawn(schema, dice) for _ in range(DOCUMENTS)]
        others = dice.sample(hostile, 40) if drawn is random_document else []
        case = Case(schema, [*documents, *others], dice.choice(OPTIONS))
        if not refused(case.shape):
            cases.append(case)
    return cases


def regular_case(dice: random.Random) -> Case:
    """Documents that are alike, so that most of them are read the regular way."""
    schema = regular_schema(dice)
    if dice.random() < 0.3:  # all of them are
        return Case(schema, Block(schema, dice).documents(DOCUMENTS, odd=0.1), dice.choice(OPTIONS))
    blocks = [Block(schema, dice).documents(ALIKE) for _ in range(DOCUMENTS // ALIKE)]
    return Case(schema, [text for block in blocks for text in block], dice.choice(OPTIONS))


@contextmanager
def counted() -> Iterator[list[int]]:
    """How many documents each block has that is read the regular way; that is tried with every block."""
    read, sizes = Regular.read, []

    def spy(self: Regular, texts: Any) -> Any:
        self._pause = 0
        found = read(self, texts)
        if found is not None:
            sizes.append(len(texts))
        return found

    Regular.read = spy  # type: ignore[method-assign]
    try:
        yield sizes
    finally:
        Regular.read = read  # type: ignore[method-assign]


def smaller(difference: Difference) -> Iterator[Case]:
    """The same with less: fields of the schema left out, bytes of the document left out."""
    case, text = difference.case, difference.document or b""
    for fields in _without_one(case.schema["fields"]):
        yield Case({**case.schema, "fields": fields}, [text], case.options)
    for size in (64, 16, 4, 1):
        for start in range(0, len(text), size):
            yield Case(case.schema, [text[:start] + text[start + size :]], case.options)


def _without_one(fields: list[Any]) -> Iterator[list[Any]]:
    for number in range(len(fields)):
        yield fields[:number] + fields[number + 1 :]


def shrunk(spark: Any, difference: Difference) -> Difference:
    """The smallest that still differs, by trying many smaller ones in each job."""
    while True:
        cases = [case for case in smaller(difference) if not refused(case.shape)][:80]
        found = compared(spark, cases)[0] if cases else []
        if not found:
            return difference
        difference = min(found, key=lambda one: (len(one.document or b""), len(json.dumps(one.case.schema))))


def case_to_json(case: Case) -> dict[str, Any]:
    """For a file."""
    documents = [text if text is None else base64.b64encode(text).decode() for text in case.documents]
    return {"schema": case.schema, "options": dict(case.options), "documents": documents}


def case_of(stored: dict[str, Any]) -> Case:
    """From a file."""
    documents = [text if text is None else base64.b64decode(text) for text in stored["documents"]]
    return Case(stored["schema"], documents, stored["options"])


def kept_cases(folder: Path) -> list[Case]:
    """All that were found once and are still read natively."""
    cases = [case_of(json.loads(path.read_text())) for path in sorted(folder.glob("*.json"))]
    return [case for case in cases if not refused(case.shape)]


def keep(difference: Difference) -> Path:
    """Writes it where the tests find it."""
    stored = case_to_json(Case(difference.case.schema, [difference.document], difference.case.options))
    stored |= {"text": repr(difference.document), "native": difference.native, "spark": difference.spark}
    return _stored(stored)


def keep_raising(case: Case, error: Exception) -> Path:
    """The same for a case of which something was raised."""
    return _stored(case_to_json(case) | {"raised": repr(error)[:2000]})


def _raises(spark: Any, case: Case) -> bool:
    try:
        compared(spark, [case])
    except Exception:  # noqa: BLE001
        return True
    return False


def _stored(stored: dict[str, Any]) -> Path:
    text = json.dumps(stored, indent=1, ensure_ascii=True)
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{sha256(text.encode()).hexdigest()[:12]}.json"
    path.write_text(text + "\n")
    return path


def documents_differ(spark: Any, seed: int, seconds: float) -> bool:
    """Compares documents for so long, or until something is found."""
    ends = time.monotonic() + seconds
    read = total = regular = 0
    while time.monotonic() < ends:
        cases = random_cases(random.Random(seed))
        try:
            with counted() as sizes:
                differences, shares = compared(spark, cases, few=ALIKE)
        except Exception as error:  # noqa: BLE001  whatever it is: without its documents it is lost
            kept = [keep_raising(case, error) for case in cases if _raises(spark, case)]
            print(f"seed {seed}: {error!r}\nkept in {', '.join(map(str, kept)) or 'nothing: no case by itself'}")
            return True
        total += sum(len(case.documents) for case in cases)
        read += round(sum(share * len(case.documents) for share, case in zip(shares, cases, strict=True)))
        regular += sum(sizes)
        print(
            f"seed {seed}: {total} documents so far, {read} of them read natively; {regular} times one was regular",
            flush=True,
        )
        if differences:
            first = shrunk(spark, differences[0])
            print(f"seed {seed}: {len(differences)} differ; {first}\nkept in {keep(first)}")
            return True
        seed += 1
    return False


def expressions_differ(spark: Any, seed: int, seconds: float) -> bool:
    """The same for expressions."""
    found = list(random_expressions.differences(spark, seed, seconds))
    for one in found:
        print(one)
    return bool(found)


def main() -> int:
    """1 if something differs."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=60)
    asked.add_argument("--seed", type=int, default=None, help="default: another one each time")
    asked.add_argument("--only", choices=["documents", "expressions", "csv"], help="default: all")
    given = asked.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"seed {seed}: start with --seed {seed} to see the same again", flush=True)
    from anabranch.engine.session import open_session

    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(app_name="fuzz", log_folder=Path(folder), settings={})
        try:
            looks = {"documents": documents_differ, "expressions": expressions_differ, "csv": lines_differ}
            looks = {name: look for name, look in looks.items() if given.only in (None, name)}
            found = [look(spark, seed, given.seconds / len(looks)) for look in looks.values()]
            return int(any(found))
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
