"""Every example in README and docs runs as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(str(page) for page in ROOT.glob("docs/**/*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks(page):
    return BLOCK.findall((ROOT / page).read_text())


def run(page, folder, monkeypatch):
    """Run all examples of a page, one after the other, in an empty folder; return its names."""
    mpl.use("Agg")
    monkeypatch.chdir(folder)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    names: dict = {}
    for language, text in blocks(page):
        if language == "python":
            exec(text, names)
        else:
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(
                command, capture_output=True, text=True, env=os.environ | {"PATH": path}
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return names


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_examples_run(page, tmp_path, monkeypatch):
    names = run(page, tmp_path, monkeypatch)
    if page == "README.md":
        assert names["model"].score(names["X_new"], names["y_new"]) > 0.95


def test_blocks_are_of_a_kind_that_is_run():
    kinds = {language for page in PAGES for language, _ in blocks(page)}
    assert kinds == {"python", "sh"}
    assert sum(len(blocks(page)) for page in PAGES) >= 12


def test_pages_of_the_site_are_all_listed():
    listed = (ROOT / "mkdocs.yml").read_text()
    for page in ROOT.glob("docs/**/*.md"):
        assert str(page.relative_to(ROOT / "docs")) in listed
