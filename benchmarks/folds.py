"""What folds of the latent maps are worth: effective draws per CPU second with and without them.

For each case and number of folds tried for each step of a trajectory, spread over the columns by
their levels ("chosen": as many of each column as warm-up finds it needs): effective draws of the
worst identified quantity, of the worst twentieth and of the median one, per CPU second of sampling,
warm-up and compilation left out, and the largest R-hat. Where maps have modes that are rarely left
(M2AX bulk modulus), four chains show by luck which of them they meet; so four chains from each of
several seeds, warmed up and tuned anew, are measured together, as if they were one run.

    LVGP_DATA=... python benchmarks/folds.py [CPU seconds for each seed [seeds [case ...]]]

Writes benchmarks/results/folds.json after every line.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import json
import sys
from pathlib import Path

import numpy as np
import tables
from trajectories import sampled

from lvgp.infer import convergence
from lvgp.infer.folds import spread_over

RESULTS = Path(__file__).parent / "results" / "folds.json"
FOLDS = (0.0, 0.3, 0.7, 1.4, "chosen")
PROBE = 50


def efficiency(case, folds, seconds, seeds):
    """Sample for about `seconds` CPU seconds with each seed; return figures of all together."""

    def change(tuning):
        if folds == "chosen":
            return tuning
        return tuning._replace(folds=spread_over(case.model.n_levels, folds))

    # the first of them compiles
    for _ in range(2):
        _, probed, _ = sampled(case, change, PROBE)
    draws = max(PROBE, int(PROBE * seconds / probed))
    runs = [sampled(case, change, draws, seed) for seed in range(seeds)]
    cpu = sum(run[1] for run in runs)
    found = convergence.measure(np.concatenate([values for _, _, values in runs]))
    worst, twentieth, median = np.quantile(found.ess_bulk, [0.0, 0.05, 0.5]) / cpu
    return {
        "case": case.name,
        "folds": folds,
        "chains": 4 * seeds,
        "draws": draws,
        "cpu": cpu,
        "gradients": int(sum(record.steps.sum() for record, _, _ in runs)),
        "worst": worst,
        "twentieth": twentieth,
        "median": median,
        "r_hat": float(found.r_hat.max()),
    }


def main(seconds="200", seeds="3", *names):
    """Print a line for each case and number of folds."""
    cases = [tables.m2ax("bulk"), tables.m2ax("shear")] if tables.has_tables() else []
    cases.append(tables.problem("borehole", 4))
    cases = [case for case in cases if case.name in names or not names]
    results = []
    print("| case | folds a step | CPU s | worst per CPU s | worst twentieth | median | R-hat |")
    print("|---|---|---|---|---|---|---|")
    for case in cases:
        for folds in FOLDS:
            found = efficiency(case, folds, float(seconds), int(seeds))
            results.append(found)
            RESULTS.write_text(json.dumps(results, indent=1))
            figures = " | ".join(f"{found[name]:.3g}" for name in ("worst", "twentieth", "median"))
            print(
                f"| {case.name} | {folds} | {found['cpu']:.0f} | {figures} "
                f"| {found['r_hat']:.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
