"""What the metric of trajectories is worth: effective draws per gradient with a diagonal one too.

For each case: one entry for each parameter and steps that vary by half, the same with steps that
vary by a fifth, and with a matrix between the levels of each column as well (as warm-up has it).
Four chains from each of several seeds, warmed up and tuned anew, are measured together: effective
draws of the worst identified quantity and of the median one per 10 000 gradients of sampling. Where
maps have modes that are rarely left (M2AX bulk), the worst is mostly luck; the median is not.

    LVGP_DATA=... python benchmarks/metrics.py [draws a chain [seeds [case ...]]]

Writes benchmarks/results/metrics.json after every line.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import json
import math
import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import tables
from trajectories import sampled

from lvgp.infer import convergence, metric, microcanonical

RESULTS = Path(__file__).parent / "results" / "metrics.json"
WAYS = {
    "diagonal, steps from 0.5": (math.inf, 0.5),
    "diagonal, steps from 0.8": (math.inf, 0.8),
    "levels, steps from 0.8": (1.0, 0.8),
}


def efficiency(case, way, draws, seeds):
    """Sample in one of the ways with each seed; return figures of all together."""
    draws_an_entry, shortest = WAYS[way]
    microcanonical.advance.clear_cache()
    with (
        patch.object(metric, "_DRAWS_AN_ENTRY", draws_an_entry),
        patch.object(microcanonical, "_SHORTEST_STEP", shortest),
    ):
        runs = [sampled(case, lambda tuning: tuning, draws, seed) for seed in range(seeds)]
    microcanonical.advance.clear_cache()
    gradients = int(sum(record.steps.sum() for record, _, _ in runs))
    ess = convergence.measure(np.concatenate([values for _, _, values in runs])).ess_bulk
    return {
        "case": case.name,
        "way": way,
        "draws": draws,
        "seeds": seeds,
        "gradients": gradients,
        "acceptance": float(np.mean([record.acceptance.mean() for record, _, _ in runs])),
        "worst": float(1e4 * ess.min() / gradients),
        "median": float(1e4 * np.median(ess) / gradients),
    }


def main(draws="500", seeds="3", *names):
    """Print a line for each case and way."""
    cases = [tables.m2ax("shear"), tables.m2ax("bulk")] if tables.has_tables() else []
    cases += [tables.problem("borehole", 2), tables.problem("borehole", 4)]
    cases = [case for case in cases if case.name in names or not names]
    results = []
    print("| case | metric | gradients | acceptance | worst per 1e4 | median per 1e4 |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        for way in WAYS:
            found = efficiency(case, way, int(draws), int(seeds))
            results.append(found)
            RESULTS.write_text(json.dumps(results, indent=1))
            figures = " | ".join(f"{found[name]:.3g}" for name in ("acceptance", "worst", "median"))
            print(f"| {case.name} | {way} | {found['gradients']} | {figures} |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
