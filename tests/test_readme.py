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


def run(pages, folder, monkeypatch):
    """Run all examples of pages, one after the other, in one empty folder; return their names.

    A command that two of the pages have runs once.
    """
    mpl.use("Agg")
    monkeypatch.chdir(folder)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    names: dict = {}
    commands = []
    for language, text in [block for page in pages for block in blocks(page)]:
        if language == "python":
            exec(text, names)
            continue
        for line in (line.split("  #")[0].strip() for line in text.splitlines()):
            if line and line not in commands:
                commands.append(line)
                done = subprocess.run(
                    ["bash", "-c", line],
                    capture_output=True,
                    text=True,
                    env=os.environ | {"PATH": path},
                )
                assert done.returncode == 0, done.stdout + done.stderr
    return names


STARTS = ["README.md", str(ROOT / "docs" / "index.md")]


def test_examples_of_the_first_pages_run(tmp_path, monkeypatch):
    names = run(STARTS, tmp_path, monkeypatch)
    assert names["model"].score(names["X"], names["y"]) > 0.95


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page) and page not in STARTS])
def test_examples_run(page, tmp_path, monkeypatch):
    assert run([page], tmp_path, monkeypatch) is not None


def test_blocks_are_of_a_kind_that_is_run():
    kinds = {language for page in PAGES for language, _ in blocks(page)}
    assert kinds == {"python", "sh"}
    assert sum(len(blocks(page)) for page in PAGES) >= 12


def test_pages_of_the_site_are_all_listed():
    listed = (ROOT / "mkdocs.yml").read_text()
    for page in ROOT.glob("docs/**/*.md"):
        assert str(page.relative_to(ROOT / "docs")) in listed
