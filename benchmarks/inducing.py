"""Where inducing points should start: greedy choice, k-means or random rows, points held or free.

ABO3 formation energy, 1000 training rows, M = 50, FITC and VFE. From the same starting points of
the parameters, each way chooses rows, searches over the parameters with the points held there,
then with the points free; printed is the log density reached by each, mean and best over starts,
the RRMSE of predictions at the 4276 other rows (mean over starts, and that of the best), and the
time. A search of the sparse model takes the best of several. Needs LVGP_DATA.

    python benchmarks/inducing.py [starts]
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import tables
from sklearn.cluster import KMeans
from sklearn.metrics import pairwise_distances_argmin

from lvgp import compute, metrics
from lvgp.infer import inducing
from lvgp.infer.optimize import search, starting_points
from lvgp.model import features, pack_rows
from lvgp.priors import Priors

PRIORS = Priors(noise_floor=1e-4)
POINTS = 50


def greedy(model, rows, start, rng):
    """Each next row where those before explain least."""
    return np.asarray(inducing.greedy_rows(model, POINTS, start, rows, PRIORS))


def nearest_to_centres(model, rows, start, rng):
    """The rows nearest to k-means centres in the space of features."""
    parameters = model.parameters(jnp.asarray(start), PRIORS)
    real = int(rows.mask.sum())
    points = np.asarray(features(parameters, rows.x, rows.t, rows.remoteness))[:real]
    centres = KMeans(POINTS, n_init=1, random_state=0).fit(points).cluster_centers_
    chosen = np.unique(pairwise_distances_argmin(centres, points))
    rest = np.setdiff1d(np.arange(real), chosen)
    return np.append(chosen, rng.choice(rest, POINTS - len(chosen), replace=False))


def at_random(model, rows, start, rng):
    """Any rows."""
    return rng.choice(int(rows.mask.sum()), POINTS, replace=False)


def run(case, model, rows, start, choose, rng):
    """Return log densities reached with points held and free, the error at test rows, the time."""
    begun = time.perf_counter()
    chosen = inducing.at_rows(model, rows, choose(model, rows, start, rng))
    placed = rows._replace(inducing=jax.tree.map(jnp.asarray, chosen))
    end = search(model, start, placed, PRIORS, 1.0, 600)
    held = inducing.End(
        np.asarray(end.point), chosen, -float(end.value), int(end.evaluations), True
    )
    free = inducing.points_free(model, rows, PRIORS, held)
    took = time.perf_counter() - begun
    placed = rows._replace(inducing=jax.tree.map(jnp.asarray, free.inducing))
    return held.log_density, free.log_density, test_error(model, placed, free.vector, case), took


def test_error(model, rows, vector, case):
    """Return RRMSE of the predictions with these parameters and inducing points."""
    new, vector = case.space.encode(case.X_test), jnp.asarray(vector)
    points = features(model.parameters(vector, PRIORS), new.x, new.t, np.zeros(len(new.t)))
    mean = model.conditional_moments(model.condition(vector, rows, PRIORS), points)[0]
    centre, scale = case.y.mean(), case.y.std(ddof=1)
    return metrics.rrmse(case.y_test, centre + scale * np.asarray(mean))


def main(starts):
    """Print the table."""
    case = tables.abo3()
    print(
        "| rule | start | held: mean | best | free: mean | best | RRMSE: mean | of best | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    with compute.scope(), compute.one_blas_thread():
        rows = pack_rows(case.encoded.x, case.encoded.t, case.standardised)
        for rule in ("fitc", "vfe"):
            model = replace(case.model, approximation=rule)
            points = starting_points(model, PRIORS, starts, 0)
            for choose in (greedy, nearest_to_centres, at_random):
                rng = np.random.default_rng(0)
                found = np.array([run(case, model, rows, start, choose, rng) for start in points])
                held, free, error, seconds = found.T
                print(
                    f"| {rule} | {choose.__name__} | {held.mean():.0f} | {held.max():.0f} "
                    f"| {free.mean():.0f} | {free.max():.0f} | {error.mean():.3f} "
                    f"| {error[free.argmax()]:.3f} | {seconds.mean():.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
