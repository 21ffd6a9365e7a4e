"""Studies: the same results however they are run, stopped and gone on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from lvgp.cli import app
from lvgp.errors import InputError
from lvgp.study import STUDIES, Arm, ProblemCase, Study, TableCase, run, summarise
from lvgp.study.results import bootstrap_ratio
from lvgp.study.running import truth_of

SMALL = Study(
    "small",
    "A small study",
    (ProblemCase("borehole", 2, test_rows=50),),
    tuple(Arm(method, {"method": method, "restarts": 2}) for method in ("mle", "map")),
    replicates=2,
)
MEASURED = ["fit_seconds", "predict_seconds", "started", "machine"]
COMMAND = [sys.executable, "-c", "from lvgp.cli import main; main()"]


def lasting(found):
    """The columns that do not depend on when and where."""
    return found.drop(columns=MEASURED).reset_index(drop=True)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    return summarise(SMALL, run(SMALL, folder, seed=3, progress=False), folder), folder


def test_table_summary_and_figures_are_written(uninterrupted):
    found, folder = uninterrupted
    assert found.shape[0] == 4
    assert set(found["status"]) == {"done"}
    assert (found["seed"] == 3).all()
    assert found["versions"].str.contains("lvgp=").all()
    stored = pd.read_csv(folder / "results.csv")
    np.testing.assert_array_equal(stored["rrmse"], found["rrmse"])
    for score in ("rrmse", "interval_score", "coverage", "fit_seconds"):
        assert (folder / "figures" / f"{score}.png").stat().st_size > 1000
    assert "borehole-32 | map" in (folder / "summary.md").read_text()


def test_results_do_not_depend_on_the_number_of_jobs(uninterrupted, tmp_path):
    found = summarise(SMALL, run(SMALL, tmp_path, seed=3, jobs=2, progress=False), tmp_path)
    pd.testing.assert_frame_equal(lasting(found), lasting(uninterrupted[0]), check_exact=True)


def test_arms_of_a_replicate_share_their_data_and_replicates_differ():
    case = SMALL.cases[0]
    first, again, other = (case.split(3, number, None) for number in (0, 0, 1))
    pd.testing.assert_frame_equal(first.X, again.X)
    assert not first.X.equals(other.X)


def test_killed_twice_and_gone_on_with_it_is_the_same_table(tmp_path):
    """SIGKILL as soon as there is a result, twice; then to the end."""
    options = ["study", "run", "engineering", "--problem", "borehole", "--per-level", "2"]
    options += ["--method", "map", "--replicates", "3", "--seed", "3", "--quiet", "--output"]
    folder = tmp_path / "killed"
    for wanted in (1, 2):
        process = subprocess.Popen([*COMMAND, *options, str(folder)], start_new_session=True)
        try:
            deadline = time.monotonic() + 120
            while len(list(folder.glob("tasks/[!.]*.json"))) < wanted:
                assert process.poll() is None, "ended before it could be killed"
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    done = [json.loads(path.read_text()) for path in folder.glob("tasks/[!.]*.json")]
    assert all(one["status"] == "done" for one in done)
    kept = {path: path.stat().st_mtime_ns for path in folder.glob("tasks/[!.]*.json")}
    assert subprocess.run([*COMMAND, *options, str(folder)]).returncode == 0
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    assert subprocess.run([*COMMAND, *options, str(tmp_path / "whole")]).returncode == 0
    tables = [pd.read_csv(tmp_path / name / "results.csv") for name in ("killed", "whole")]
    pd.testing.assert_frame_equal(lasting(tables[0]), lasting(tables[1]), check_exact=True)


def test_a_failed_task_is_recorded_and_the_rest_goes_on(tmp_path):
    broken = Arm("broken", {"method": "map", "latent_dim": 0})
    study = replace(SMALL, arms=(broken, SMALL.arms[1]), replicates=1)
    found = summarise(study, run(study, tmp_path, progress=False), tmp_path)
    assert found["status"].tolist() == ["failed", "done"]
    assert "InputError: latent_dim" in found["error"][0]
    assert "1 fits failed" in (tmp_path / "summary.md").read_text()
    mended = replace(study, arms=(replace(broken, options={"method": "map"}), SMALL.arms[1]))
    with pytest.raises(InputError, match="other settings of broken"):
        run(mended, tmp_path, progress=False)


def test_a_folder_of_another_seed_is_refused(uninterrupted):
    with pytest.raises(InputError, match="with seed 3; choose another output folder"):
        run(SMALL, uninterrupted[1], seed=4, progress=False)


def test_a_dask_cluster_gives_the_same_and_survives_the_loss_of_a_worker(uninterrupted, tmp_path):
    distributed = pytest.importorskip("dask.distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        victim = next(iter(cluster.workers.values())).process.pid
        killer = subprocess.Popen(
            [sys.executable, "-c", _KILLER, str(tmp_path / "tasks"), str(victim)]
        )
        results = run(SMALL, tmp_path, seed=3, scheduler=cluster.scheduler_address, progress=False)
        assert killer.wait(timeout=60) == 0, "the worker was not killed during the run"
    found = summarise(SMALL, results, tmp_path)
    pd.testing.assert_frame_equal(lasting(found), lasting(uninterrupted[0]), check_exact=True)


_KILLER = """
import os, signal, sys, time
from pathlib import Path
while not list(Path(sys.argv[1]).glob("[!.]*.json")):
    time.sleep(0.005)
os.kill(int(sys.argv[2]), signal.SIGKILL)
"""


def spinels(folder, rows=120):
    """A generated table in the layout of the lacunar spinels."""
    rng = np.random.default_rng(0)
    levels = {
        "A": ["Al", "Ga", "In"],
        "Ma": ["V", "Nb", "Ta", "Cr", "Mo", "W"],
        "Mb": ["V", "Nb", "Ta", "Mo", "W"],
        "Q": ["S", "Se", "Te"],
    }
    table = pd.DataFrame({name: rng.choice(values, rows) for name, values in levels.items()})
    effects = {
        name: dict(zip(v, rng.normal(size=len(v)), strict=True)) for name, v in levels.items()
    }
    signal = sum(table[name].map(effects[name]) for name in levels)
    table["bandgap_eV"], table["stability_eV"] = signal, -signal
    (folder / "spinels").mkdir()
    table.to_csv(folder / "spinels" / "spinels.csv", index=False)


@pytest.mark.long
def test_spinel_study_runs_on_a_table_of_its_layout(tmp_path):
    spinels(tmp_path)
    runner = CliRunner()
    options = ["study", "run", "spinels", "--target", "bandgap_eV", "--method", "map", "--quiet"]
    options += ["--replicates", "1", "--data", str(tmp_path), "--output", str(tmp_path / "out")]
    done = runner.invoke(app, options)
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "out" / "results.csv")
    assert found["rows"].tolist() == [50, 75, 100]
    assert (found["rrmse"] < 1.0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["spinels", "--data", "."], "spinels.csv: there is no such file. 270 lacunar spinels"),
        (["nothing"], "expected a study"),
        (["engineering", "--problem", "bridge"], "has no 'bridge'; it has borehole"),
        (["engineering", "--method", "magic"], "has no 'magic'"),
        (["m2ax", "--per-level", "2"], "has no test problems"),
        (["engineering", "--backend", "dask"], "needs --scheduler"),
        (["--table", "none.csv", "--target", "y"], "there is no such file"),
        (["--table", "none.csv"], "needs one --target"),
        (["engineering", "--replicates", "0"], "--replicates"),
        (["engineering", "--method", "map", "--draws", "50"], "--draws: goes with full Bayes"),
        (["engineering", "--draws", "9"], "--draws"),
        (["engineering", "--train", "20"], "--train: goes only with --table"),
        (["engineering", "--ignore", "x"], "--ignore: goes only with --table"),
        (["m2ax", "--table", "a.csv", "--target", "y"], "NAME: goes not with --table"),
    ],
)
def test_wrong_calls_exit_with_two_and_a_line(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LVGP_DATA", raising=False)
    done = CliRunner().invoke(app, ["study", "run", *options])
    assert done.exit_code == 2
    assert message in " ".join(done.output.replace("│", " ").split())
    assert "Traceback" not in done.output


def test_missing_data_directory_says_what_to_give(monkeypatch, tmp_path):
    monkeypatch.delenv("LVGP_DATA", raising=False)
    with pytest.raises(
        InputError, match=r"Give --data DIRECTORY.*LVGP_DATA.*doi:10.1038/srep19660"
    ):
        run(STUDIES["m2ax"], tmp_path, progress=False)


def test_draws_bound_the_chains_of_full_bayes_only(tmp_path):
    options = ["study", "run", "engineering", "--problem", "borehole", "--per-level", "2"]
    options += ["--method", "map", "--method", "bayes", "--draws", "60", "--replicates", "1"]
    done = CliRunner().invoke(app, [*options, "--quiet", "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "out" / "results.csv").set_index("arm")
    assert found.loc["bayes", "verdict"] in ("caution", "bad")
    told = json.loads((tmp_path / "out" / "study.json").read_text())["arms"]
    assert json.loads(told["bayes"])["options"]["draws"] == 60
    assert "draws" not in json.loads(told["map"])["options"]
    again = CliRunner().invoke(app, [*options[:-4], "--output", str(tmp_path / "out")])
    assert again.exit_code == 2
    assert "other settings of bayes" in " ".join(again.output.split())


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("temperature", None, "column 'temperature': NaN, missing or infinite"),
        ("y", None, "missing or infinite (inf) values in row 3"),
        ("y", "high", "column 'y', row 3: 'high' is not a number"),
    ],
)
def test_a_wrong_value_in_an_own_table_is_found_before_any_fit(column, value, message, tmp_path):
    table = pd.DataFrame({"kind": list("abab") * 5, "temperature": np.arange(20.0)})
    table["y"] = np.sin(np.arange(20))
    table = table.astype({column: object})
    table.loc[2, column] = value
    table.to_csv(tmp_path / "my.csv", index=False)
    options = ["study", "run", "--table", str(tmp_path / "my.csv"), "--target", "y"]
    done = CliRunner().invoke(app, [*options, "--output", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_own_table(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"kind": rng.choice(list("abcd"), 40), "grade": rng.integers(1, 4, 40)})
    table["y"] = table["kind"].map({"a": 0, "b": 1, "c": 2, "d": 4}) + 0.2 * table["grade"]
    table.assign(id=range(40)).to_csv(tmp_path / "my.csv", index=False)
    options = ["study", "run", "--table", str(tmp_path / "my.csv"), "--target", "y"]
    options += ["--categorical", "grade", "--ignore", "id", "--method", "map", "--train", "20"]
    options += ["--replicates", "2", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 0, done.output
    assert len(pd.read_csv(tmp_path / "out" / "results.csv")) == 2


def test_descriptor_arms_see_the_descriptors_only(data_directory):
    study = STUDIES["m2ax"]
    case = study.cases[1]
    split = case.split(0, 0, data_directory)
    assert set(split.descriptors) <= set(split.X)
    assert isinstance(case, TableCase)
    assert len(split.X) == 100
    assert len(split.X_test) == 123


def test_more_replicates_go_on_from_those_there_are(uninterrupted, tmp_path):
    run(replace(SMALL, replicates=1), tmp_path, seed=3, progress=False)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("tasks/*.json")}
    assert len(before) == 2
    results = run(SMALL, tmp_path, seed=3, progress=False)
    assert len(results) == 4
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())


def test_bootstrap_interval_holds_the_ratio_and_shrinks():
    rng = np.random.default_rng(0)
    theirs = rng.gamma(4.0, size=400)
    ours = 0.8 * theirs * rng.gamma(50.0, 1 / 50.0, size=400)
    low, high = bootstrap_ratio(ours, theirs)
    assert low < 0.8 < high
    assert high - low < 0.05


def test_truth_behind_the_levels_is_scaled_by_its_effect():
    truth = truth_of(ProblemCase("borehole", 2))
    assert truth.grid.shape == (16, 2)
    spread = truth.grid.std(axis=0)
    assert spread[0] > 3 * spread[1], "the radius matters far more than the head"
