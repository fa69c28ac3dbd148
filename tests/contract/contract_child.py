"""Apply one receipt to one sink, in a process of its own: see `contract_case.apply_in_child`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

from anabranch.connectors.contract import SinkSpec
from anabranch.core.changes import Merge
from anabranch.core.epoch import EpochKey, Receipt


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    module, plain, at, receipt = json.loads(sys.argv[1])
    merge: dict[str, Any] | None = plain.pop("merge")
    spec = SinkSpec(**plain, merge=Merge.from_record(merge) if merge else None)
    sink = importlib.import_module(module).CASE.open(spec)
    sink.apply(EpochKey(*at), Receipt.from_json(receipt))


if __name__ == "__main__":
    main()
