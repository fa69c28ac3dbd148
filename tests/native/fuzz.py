"""Looks for records that the native pass reads differently from Spark: `make fuzz SECONDS=60`.

Random schemas, random and mutated documents, thousands in each job of Spark. A difference is made as small as can be
and written to `found/`, where a test replays it ever after. Ends with 1 if there was one.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from anabranch.native.parse import refused
from native.json_against_spark import Case, Difference, compared
from native.json_documents import by_hand, random_document, random_schema

FOUND = Path(__file__).parent / "found"
EXPRESSIONS = Path(__file__).parent / "random_expressions.py"

SCHEMAS = 24
DOCUMENTS = 400

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
        schema = random_schema(dice)
        documents = [random_document(schema, dice) for _ in range(DOCUMENTS)]
        case = Case(schema, [*documents, *dice.sample(hostile, 40)], dice.choice(OPTIONS))
        if not refused(case.shape):
            cases.append(case)
    return cases


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
    text = json.dumps(stored, indent=1, ensure_ascii=True)
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{sha256(text.encode()).hexdigest()[:12]}.json"
    path.write_text(text + "\n")
    return path


def documents_differ(spark: Any, seed: int, seconds: float) -> bool:
    """Compares documents for so long, or until something is found."""
    ends = time.monotonic() + seconds
    read = total = 0
    while time.monotonic() < ends:
        cases = random_cases(random.Random(seed))
        differences, shares = compared(spark, cases)
        total += sum(len(case.documents) for case in cases)
        read += round(sum(share * len(case.documents) for share, case in zip(shares, cases, strict=True)))
        print(f"seed {seed}: {total} documents so far, {read} of them read natively", flush=True)
        if differences:
            first = shrunk(spark, differences[0])
            print(f"{len(differences)} differ; {first}\nkept in {keep(first)}")
            return True
        seed += 1
    return False


def expressions_differ(spark: Any, seed: int, seconds: float) -> bool:
    """The same for expressions, if there are tests of them."""
    if not EXPRESSIONS.exists():
        return False
    spec = importlib.util.spec_from_file_location("random_expressions", EXPRESSIONS)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["random_expressions"] = module
    spec.loader.exec_module(module)
    found = list(module.differences(spark, seed, seconds))
    for one in found:
        print(one)
    return bool(found)


def main() -> int:
    """1 if something differs."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--seconds", type=float, default=60)
    asked.add_argument("--seed", type=int, default=None, help="default: another one each time")
    given = asked.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10**9)
    from anabranch.engine.session import open_session

    with tempfile.TemporaryDirectory() as folder:
        spark = open_session(app_name="fuzz", log_folder=Path(folder), settings={})
        try:
            share = given.seconds / (2 if EXPRESSIONS.exists() else 1)
            differ = documents_differ(spark, seed, share)
            return int(expressions_differ(spark, seed, share) or differ)
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
