"""What folds of the latent maps are worth: effective draws per CPU second with and without them.

For each case and number of folds tried for each step of a trajectory: effective draws of the worst
identified quantity, of the worst twentieth and of the median one, per CPU second of sampling,
warm-up and compilation left out. All with the same number of CPU seconds, roughly. Where maps have
modes that are rarely left (M2AX bulk modulus), such figures are themselves uncertain by half for
less than some 400 seconds.

    LVGP_DATA=... python benchmarks/folds.py [CPU seconds for each]

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

RESULTS = Path(__file__).parent / "results" / "folds.json"
FOLDS = (0.0, 0.3, 1.0)
PROBE = 50


def efficiency(case, folds, seconds):
    """Sample for about `seconds` CPU seconds; return figures."""

    def change(tuning):
        return tuning._replace(folds=folds)

    # the first of them compiles
    for _ in range(2):
        _, probed, _ = sampled(case, change, PROBE)
    record, cpu, ess = sampled(case, change, max(PROBE, int(PROBE * seconds / probed)))
    worst, twentieth, median = np.quantile(ess, [0.0, 0.05, 0.5]) / cpu
    return {
        "case": case.name,
        "folds": folds,
        "cpu": cpu,
        "gradients": int(record.steps.sum()),
        "worst": worst,
        "twentieth": twentieth,
        "median": median,
    }


def main(seconds):
    """Print a line for each case and number of folds."""
    cases = [tables.m2ax("bulk"), tables.m2ax("shear")] if tables.has_tables() else []
    cases.append(tables.problem("borehole", 4))
    results = []
    print("| case | folds a step | CPU s | worst per CPU s | worst twentieth | median |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        for folds in FOLDS:
            found = efficiency(case, folds, seconds)
            results.append(found)
            RESULTS.write_text(json.dumps(results, indent=1))
            figures = " | ".join(f"{found[name]:.3g}" for name in ("worst", "twentieth", "median"))
            print(f"| {case.name} | {folds} | {found['cpu']:.0f} | {figures} |", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 400.0)
