"""Accuracy and time of sparse models on ABO3 perovskites, 1000 training rows of 5276.

FITC and VFE, MAP and full Bayes, over splits, numbers of inducing points and of latent dimensions.
MAP runs on one core; full Bayes on all, asked to converge for predictions, for at most `LIMIT`
seconds (which may be too few for any draws: "failed"). The figures of the authors' implementation
(`shared/reference`, one split, one core, M = 50, two dimensions): FITC MAP .500 / 3.19 / .80 in
142 s, FITC full Bayes .5005 / 2.51 / .93 in 1188 s, VFE MAP .460 / 8.33 / .29 in 156 s.

    LVGP_DATA=... python benchmarks/sparse_accuracy.py [--dim D] [fitc|vfe] [map|bayes] [M ...]

Writes benchmarks/results/sparse_accuracy.json after every fit, and goes on from what is in it.
"""

from __future__ import annotations

import os
import sys

ONE_CORE, DIM = "--one-core", "--dim"
if ONE_CORE in sys.argv:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import json
import subprocess
import warnings
from pathlib import Path

import pandas as pd
import tables

from lvgp import LVGPRegressor
from lvgp.errors import LVGPError, LVGPWarning

RESULTS = Path(__file__).parent / "results" / "sparse_accuracy.json"
SEEDS = (100, 137, 175)
LIMIT = 585.0
RULES, METHODS = ("fitc", "vfe"), ("map", "bayes")
TASK = ("dim", "points", "seed", "rule", "method")
SCORES = ("rrmse", "interval_score", "coverage", "seconds", "r_hat")


def scores(case, dim, rule, method, points):
    """Fit and score; the time is that of a fit whose programs are compiled already."""
    levels = {column.name: list(column.levels) for column in case.space.qualitative}
    model = LVGPRegressor(
        method,
        approximation=rule,
        n_inducing=points,
        latent_dim=dim,
        levels=levels,
        converge="predictions",
        time_limit=LIMIT if method == "bayes" else None,
        random_state=0,
        progress=False,
    )
    return tables.fitted(model, case) | (convergence(model) if method == "bayes" else {})


def convergence(model):
    """Return how well the predictive means at the training rows are known."""
    table = model.diagnostics_.table
    predictions = table[table.index.str.startswith("prediction[")]
    return {
        "r_hat": float(predictions["r_hat"].max()),
        "share_below_1.02": float((predictions["r_hat"] < 1.02).mean()),
        "min_ess": float(predictions["ess_bulk"].min()),
        "median_ess": float(predictions["ess_bulk"].median()),
        "draws": model.draws_.sampling.draws,
    }


def on_one_core(*task):
    """Return the scores of a fit in a process of its own that never sees more than one core."""
    command = [sys.executable, __file__, ONE_CORE, *map(str, task)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def alone(dim, points, seed, rule, method):
    """Print the scores of the second fit, whose programs are compiled."""
    for _ in range(2):
        found = scores(tables.abo3(int(seed)), int(dim), rule, method, int(points))
    print(json.dumps(found))


def main(dim, numbers, rules, methods):
    """Run everything, then print the table."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    done = {tuple(one[key] for key in TASK) for one in results}
    tasks = [
        (dim, points, seed, rule, method)
        for points in numbers
        for seed in (SEEDS if points == numbers[0] else SEEDS[:1])
        for rule in rules
        for method in methods
    ]
    for task in (task for task in tasks if task not in done):
        _, points, seed, rule, method = task
        try:
            found = (
                on_one_core(*task)
                if method == "map"
                else scores(tables.abo3(seed), dim, rule, method, points)
            )
        except LVGPError as error:
            found = {"failed": str(error)}
        named = dict(zip(TASK, task, strict=True))
        results.append(named | found)
        RESULTS.write_text(json.dumps(results, indent=1))
        print(
            named, {score: round(found[score], 3) for score in SCORES if score in found}, flush=True
        )
    print("| d | M | rule | method | splits | RRMSE | interval score | coverage | s | R-hat |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for key, part in pd.DataFrame(results).groupby(["dim", "points", "rule", "method"]):
        figures = " | ".join(f"{part[score].mean():.3g}" for score in SCORES)
        print(f"| {' | '.join(map(str, key))} | {len(part)} | {figures} |")


if __name__ == "__main__":
    warnings.simplefilter("ignore", LVGPWarning)
    if ONE_CORE in sys.argv:
        alone(*sys.argv[2:])
    else:
        asked = sys.argv[1:]
        dim = int(asked.pop(asked.index(DIM) + 1)) if DIM in asked else 2
        numbers = [int(word) for word in asked if word.isdigit()] or [50, 100, 200]
        rules = [rule for rule in RULES if rule in asked] or RULES
        methods = [method for method in METHODS if method in asked] or METHODS
        main(dim, numbers, rules, methods)
