"""The README's example runs as printed."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_example_runs(tmp_path, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(example, names)
    assert names["model"].score(names["X_new"], names["y_new"]) > 0.95
    assert (tmp_path / "borehole.lvgp").exists()
