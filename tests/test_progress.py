"""Signs of life where there is no terminal."""

import time

from lvgp import progress


def test_a_log_gets_a_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS_A_LINE", 0.05)
    with progress.progress_bar("working", 4, enabled=True) as advance:
        advance()
        deadline = time.monotonic() + 30
        told = ""
        while "working: 1 of 4" not in told and time.monotonic() < deadline:
            time.sleep(0.02)
            told += capsys.readouterr().err
    assert "working: 1 of 4\n" in told
    time.sleep(0.2)
    capsys.readouterr()
    time.sleep(0.2)
    assert capsys.readouterr().err == ""


def test_nothing_is_written_when_not_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_SECONDS_A_LINE", 0.01)
    with progress.progress_bar("working", 4, enabled=False):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
