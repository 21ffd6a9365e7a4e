"""Does the latent map of the borehole function show the numbers behind its levels?

The 16 levels stand for 4 radii r_w times 4 heads H_l; r_w matters far more. For designs with two
and four observations a level, the representative map is measured by
- within/between: the mean distance of levels that share r_w over that of levels that do not
  (1: no structure; smaller is better),
- Procrustes correlation with the true 4 x 4 grid, its axes scaled by the sd of the response's main
  effect along each (1: the map is the grid but for rotation and scale).

    python benchmarks/maps.py [designs]

Writes benchmarks/results/maps.json after every fit.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial import procrustes
from scipy.spatial.distance import pdist

from lvgp import LVGPRegressor, problems
from lvgp.errors import LVGPWarning

RESULTS = Path(__file__).parent / "results" / "maps.json"


def scaled_truth(problem):
    """Return the true grid, each axis scaled by the sd of the response's main effect along it."""
    X, y = problem.sample(50_000, seed=99)
    truth = problem.levels_truth
    columns = []
    for name in truth:
        effect = y.groupby(truth.loc[X["t"], name].to_numpy()).mean()
        values = truth[name]
        columns.append((values - values.mean()) / values.std() * effect.std())
    return np.column_stack(columns)


def measured(coordinates, truth, groups):
    """Return the two measures of a map."""
    apart = pdist(coordinates)
    same = pdist(groups[:, None]) == 0
    disparity = procrustes(truth, coordinates)[2]
    return {
        "within_between": apart[same].mean() / apart[~same].mean(),
        "procrustes": float(np.sqrt(1.0 - disparity)),
    }


def main(designs):
    """Fit all designs, then print means and standard errors."""
    warnings.simplefilter("ignore", LVGPWarning)
    problem = problems.borehole()
    truth, groups = scaled_truth(problem), problem.levels_truth["r_w"].to_numpy()
    results = []
    for seed in range(designs):
        for per_level in (2, 4):
            X, y = problem.design(per_level=per_level, seed=seed)
            model = LVGPRegressor(bounds=dict(problem.bounds), random_state=0, progress=False)
            latent = model.fit(X, y).latent_map("t")
            scores = measured(latent.coordinates.to_numpy(), truth, groups)
            verdict = model.diagnostics_.verdict
            results.append({"rows": len(y), "seed": seed, "verdict": verdict} | scores)
            RESULTS.write_text(json.dumps(results, indent=1))
    table = pd.DataFrame(results).groupby("rows")[["within_between", "procrustes"]]
    print(table.agg(["mean", "sem"]).round(3).to_string())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
