"""The main job on a built-in problem: fit by full Bayes, compare with a plug-in and the truth."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from lvgp import metrics
from lvgp.errors import InputError, LVGPWarning
from lvgp.files import write_table
from lvgp.problems import borehole
from lvgp.regressor import LVGPRegressor
from lvgp.report.page import write_report

_TEST_ROWS = 1000
_FILES = ("borehole.csv", "model.lvgp", "predictions.csv", "report.html")
_ABOUT = (
    "the training rows",
    "the fitted model",
    f"the {_TEST_ROWS} rows with mean, 95 % interval and truth",
    "a page about the fit; open it in a browser",
)


def run_demo(folder: Path, seed: int, overwrite: bool, console: Console) -> dict[str, Any]:
    """Fit the borehole function, print how well, write the files, and return the scores."""
    there = [name for name in _FILES if (folder / name).exists()]
    if there and not overwrite:
        raise InputError(
            f"{folder / there[0]}: exists already; name another folder with --output, or --force"
        )
    folder.mkdir(parents=True, exist_ok=True)
    problem = borehole()
    X, y = problem.design(per_level=2, seed=seed)
    X_new, truth = problem.sample(_TEST_ROWS, seed=seed + 1)
    console.print(
        f"Borehole: water flow from six numbers and a category t of 16 levels. {len(X)} rows to "
        f"learn from, two a level; {_TEST_ROWS} rows to predict."
    )
    shown = Table("method", "RRMSE", "interval score", "coverage of 95 %", "seconds")
    scores: dict[str, Any] = {}
    for method in ("map", "bayes"):
        settings: dict[str, Any] = {"bounds": dict(problem.bounds), "random_state": seed}
        model = LVGPRegressor(method, **settings, progress=not console.quiet)
        interval, seconds = _fit_and_predict(model, X, y, X_new)
        scores[method] = _scores(interval, truth.to_numpy()) | {"seconds": seconds}
        one = scores[method]
        covered = f"{one['coverage']:.2f}"
        texts = [f"{one['rrmse']:.3f}", f"{one['interval_score']:.1f}", covered, f"{seconds:.1f}"]
        shown.add_row(method, *texts)
    console.print(shown)
    console.print(
        "map plugs in one estimate of the latents as if it were certain, so its intervals hold "
        "far less of the truth than the 95 % they claim; bayes integrates over the latents."
    )
    console.print(f"Verdict of bayes: {model.diagnostics_}", markup=False, highlight=False)
    write_table(folder / _FILES[0], X.assign(**{str(y.name): y}))
    model.save(folder / _FILES[1])
    write_table(folder / _FILES[2], pd.concat([X_new, interval, truth.rename("truth")], axis=1))
    write_report(model, folder / _FILES[3], not console.quiet)
    for name, about in zip(_FILES, _ABOUT, strict=True):
        console.print(f"Wrote {folder / name}: {about}", highlight=False)
    return scores


def _fit_and_predict(
    model: LVGPRegressor, X: pd.DataFrame, y: pd.Series, X_new: pd.DataFrame
) -> tuple[pd.DataFrame, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LVGPWarning)
        begun = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - begun
        return model.predict_interval(X_new), seconds


def _scores(interval: pd.DataFrame, truth: np.ndarray) -> dict[str, float]:
    lower, upper = interval["lower"], interval["upper"]
    return {
        "rrmse": float(metrics.rrmse(truth, interval["mean"])),
        "interval_score": float(metrics.mean_interval_score(truth, lower, upper)),
        "coverage": float(metrics.coverage(truth, lower, upper)),
    }
