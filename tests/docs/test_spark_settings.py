"""The page of the settings is up to date, and no setting is missing on it."""

from __future__ import annotations

import sys
from pathlib import Path

from anabranch.engine.profile import PROFILE

sys.path.insert(0, str(Path(__file__).parent))
import spark_settings_reference


def test_the_reference_of_the_settings_is_up_to_date() -> None:
    written = spark_settings_reference.TARGET.read_text(encoding="utf-8")
    assert written == spark_settings_reference.render(), "write it anew: python tests/docs/spark_settings_reference.py"
    assert [s.key for s in PROFILE if f"`{s.key}`" not in written] == []


def test_every_setting_of_a_query_is_on_the_page() -> None:
    assert spark_settings_reference.QUERIES.keys() == spark_settings_reference.VALUES.keys()
