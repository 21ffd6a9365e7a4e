"""The examples in README and docs run as printed."""

import re
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parent.parent


def run(page, folder, monkeypatch):
    """Run all examples of a page, one after the other, in an empty folder."""
    examples = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    monkeypatch.chdir(folder)
    names: dict = {}
    for example in examples:
        exec(example, names)
    return names


@pytest.mark.parametrize("page", ["docs/latent-maps.md", "docs/large-data.md"])
def test_examples_of_the_docs_run(page, tmp_path, monkeypatch):
    mpl.use("Agg")
    assert run(page, tmp_path, monkeypatch)


def test_example_runs(tmp_path, monkeypatch):
    names = run("README.md", tmp_path, monkeypatch)
    assert names["model"].score(names["X_new"], names["y_new"]) > 0.95
    assert (tmp_path / "borehole.lvgp").exists()
