"""How many latent dimensions: what two, three and five cost and give on M2AX phases.

Default fits of method="bayes" (4 chains until all identified quantities have converged, 10 000
draws a chain at the most), 100 training rows of 223, columns of 10 and 12 levels: time with
compiled programs warm, how sampling ended, and scores at the other rows.
`sparse_accuracy.py --dim` does the same for columns of 73 levels.

    LVGP_DATA=... python benchmarks/dimensions.py [dimension ...]

Writes benchmarks/results/dimensions.json after every fit.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import tables

from lvgp import LVGPRegressor
from lvgp.errors import LVGPWarning

RESULTS = Path(__file__).parent / "results" / "dimensions.json"
TARGETS = ("shear", "bulk")


def scores(target, dim):
    """Fit twice, the first time for a few draws only; return scores and convergence."""
    case = tables.m2ax(target)
    for draws in (60, None):
        model = LVGPRegressor(latent_dim=dim, draws=draws, random_state=0, progress=False)
        found = tables.fitted(model, case)
    sampling, table = model.draws_.sampling, model.diagnostics_.table
    return found | {
        "ended": sampling.ended,
        "draws": sampling.draws,
        "gradients": sampling.gradients,
        "r_hat": float(table["r_hat"].max()),
        "min_ess": float(table["ess_bulk"].min()),
    }


def main(dims):
    """Run everything, then print the table."""
    results = []
    columns = ["ended", "seconds", "gradients", "r_hat", "min_ess", "rrmse", "interval_score"]
    columns.append("coverage")
    print("| target | d | " + " | ".join(columns) + " |")
    print("|" + "---|" * (len(columns) + 2))
    for target in TARGETS:
        for dim in dims:
            found = scores(target, dim)
            results.append({"target": target, "dim": dim} | found)
            RESULTS.write_text(json.dumps(results, indent=1))
            cells = (
                f"{found[name]:.4g}" if isinstance(found[name], float) else str(found[name])
                for name in columns
            )
            print(f"| {target} | {dim} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore", LVGPWarning)
    main([int(dim) for dim in sys.argv[1:]] or [2, 3, 5])
