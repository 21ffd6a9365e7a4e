"""Where inducing points should start: rows chosen greedily, by k-means or at random.

ABO3 formation energy, 1000 training rows, M = 50, FITC and VFE: whole searches of the mode on one
core, 16 starts each, that differ in nothing but the choice of rows. Printed, mean and range over
seeds: the log density reached, the RRMSE at the 4276 other rows, the time. Needs LVGP_DATA.

    python benchmarks/inducing.py [seeds]

Writes benchmarks/results/inducing.json after every search.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import tables
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from lvgp import compute, metrics
from lvgp.infer.inducing import find_sparse_mode, greedy_rows
from lvgp.model import features, pack_rows
from lvgp.priors import Priors

RESULTS = Path(__file__).parent / "results" / "inducing.json"
PRIORS = Priors(noise_floor=1e-4)
POINTS, STARTS = 50, 16


def nearest_to_centres(model, count, start, rows, priors):
    """The rows nearest to k-means centres in the space of features."""
    parameters = model.parameters(jnp.asarray(start), priors)
    real = int(rows.mask.sum())
    points = np.asarray(features(parameters, rows.x, rows.t, rows.remoteness))[:real]
    centres = KMeans(count, n_init=1, random_state=0).fit(points).cluster_centers_
    chosen = np.unique(pairwise_distances_argmin(centres, points))
    rest = np.setdiff1d(np.arange(real), chosen)
    return np.append(chosen, any_of(rest, count - len(chosen), start))


def at_random(model, count, start, rows, priors):
    """Any rows."""
    return any_of(np.arange(int(rows.mask.sum())), count, start)


def any_of(rows, count, start):
    """Rows by chance, the same for the same starting point."""
    seed = zlib.crc32(np.asarray(start).tobytes())
    return np.random.default_rng(seed).choice(rows, count, replace=False)


def test_error(case, model, rows, mode):
    """Return RRMSE of the predictions with these parameters and inducing points."""
    rows = rows._replace(inducing=jax.tree.map(jnp.asarray, mode.inducing))
    new, vector = case.space.encode(case.X_test), jnp.asarray(mode.vectors[0])
    points = features(model.parameters(vector, PRIORS), new.x, new.t, np.zeros(len(new.t)))
    mean = model.conditional_moments(model.condition(vector, rows, PRIORS), points)[0]
    centre, scale = case.y.mean(), case.y.std(ddof=1)
    return metrics.rrmse(case.y_test, centre + scale * np.asarray(mean))


def main(seeds):
    """Search, then print the table."""
    case, results = tables.abo3(), []
    with compute.scope():
        rows = pack_rows(case.encoded.x, case.encoded.t, case.standardised)
        for rule in ("fitc", "vfe"):
            model = replace(case.model, approximation=rule)
            for seed in range(seeds):
                for choose in (greedy_rows, nearest_to_centres, at_random):
                    begun = time.perf_counter()
                    mode = find_sparse_mode(
                        model, rows, PRIORS, POINTS, STARTS, seed, workers=1, choose=choose
                    )
                    found = {
                        "rule": rule,
                        "rows": choose.__name__,
                        "seed": seed,
                        "log_density": float(mode.log_densities[0]),
                        "rrmse": float(test_error(case, model, rows, mode)),
                        "seconds": time.perf_counter() - begun,
                    }
                    print(found, flush=True)
                    results.append(found)
                    RESULTS.write_text(json.dumps(results, indent=1))
    print("| rule | rows | log density | RRMSE | seconds |\n|---|---|---|---|---|")
    for key, part in pd.DataFrame(results).groupby(["rule", "rows"]):
        cells = [
            f"{part[name].mean():.{digits}f} ({part[name].min():.{digits}f} to "
            f"{part[name].max():.{digits}f})"
            for name, digits in (("log_density", 0), ("rrmse", 3), ("seconds", 0))
        ]
        print(f"| {' | '.join([*key, *cells])} |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
