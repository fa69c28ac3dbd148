"""The notebooks, executed by a kernel of this interpreter; the cells of both assert what they show."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for temporary files, with a kernel that is this interpreter, whatever is installed beside it."""
    folder = tmp_path_factory.mktemp("notebooks")
    kernel = folder / "jupyter" / "kernels" / "python3" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": command, "display_name": "Python 3", "language": "python"}))
    return folder


def executed(path: Path, place: Path, monkeypatch: pytest.MonkeyPatch, bootstrap: str) -> str:
    """Run a notebook from top to bottom; all that it printed. A cell that raises is an error here."""
    monkeypatch.setenv("JUPYTER_PATH", str(place / "jupyter"))
    monkeypatch.setenv("IPYTHONDIR", str(place / "ipython"))
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", bootstrap)
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, kernel_name="python3", timeout=250, resources={"metadata": {"path": str(FOLDER)}})
    assert client.create_kernel_manager().kernel_spec.argv[0] == sys.executable
    client.execute(env=dict(os.environ))
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return "".join(output.text for output in outputs if output.get("name") == "stdout")


@pytest.mark.spark
def test_plain_pyspark(place: Path, monkeypatch: pytest.MonkeyPatch, kafka: Any) -> None:
    said = executed(FOLDER / "1-plain-pyspark.ipynb", place, monkeypatch, kafka.bootstrap)
    assert "500 rows, with the same columns: True" in said
    assert "after the crash: {'bronze': 3028, 'dead_letters': 0, 'silver': 0}" in said
    assert "3028 rows of bronze are there twice" in said


@pytest.mark.spark
def test_with_anabranch(place: Path, monkeypatch: pytest.MonkeyPatch, kafka: Any) -> None:
    said = executed(FOLDER / "2-with-anabranch.ipynb", place, monkeypatch, kafka.bootstrap)
    assert "{'bronze': 500, 'dead_letters': 0, 'silver': 500}" in said
    assert "0 rows of bronze are there twice" in said
    # The first notebook has run before, unless this test was asked for alone.
    assert ("run the first notebook" in said) != (place / "anabranch-notebooks" / "by-hand" / "counted.json").exists()


def test_notebooks_are_kept_without_outputs() -> None:
    assert [path.name for path in NOTEBOOKS] == ["1-plain-pyspark.ipynb", "2-with-anabranch.ipynb"]
    for path in NOTEBOOKS:
        cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        assert len(cells) > 10
        assert [cell.id for cell in cells if cell.outputs or cell.execution_count is not None] == []
