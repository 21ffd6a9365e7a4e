"""Fit the borehole test function and compare the predictions with the truth.

The function has six numeric inputs and one category `t` with 16 levels, which stand for
combinations of two numbers the model is not told. Training: two observations a level.
"""

from __future__ import annotations

import time
import warnings

import lvgp
from lvgp import metrics


def main() -> None:
    problem = lvgp.problems.borehole()
    X, y = problem.design(per_level=2, seed=0)
    X_new, truth = problem.sample(1000, seed=1)
    print(f"borehole: {len(X)} training rows, {len(X_new)} test rows")
    print(
        f"{'method':8s} {'RRMSE':>7s} {'interval score':>15s} {'coverage of 95 %':>17s} {'s':>6s}"
    )
    for method in ("mle", "map", "vi", "bayes"):
        model = lvgp.LVGPRegressor(method=method, bounds=dict(problem.bounds), random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", lvgp.errors.LVGPWarning)
            begun = time.perf_counter()
            model.fit(X, y)
            seconds = time.perf_counter() - begun
            interval = model.predict_interval(X_new)
        print(
            f"{method:8s} {metrics.rrmse(truth, interval['mean']):7.3f}"
            f" {metrics.mean_interval_score(truth, interval.lower, interval.upper):15.1f}"
            f" {metrics.coverage(truth, interval.lower, interval.upper):17.2f} {seconds:6.1f}"
        )
    print(f"\nbayes: {model.diagnostics_}")
    print("\nfirst test rows (bayes):")
    shown = interval.head().assign(truth=truth.head()).round(1)
    print(shown.to_string())
    print(
        "\nmle and map plug in one estimate of the latents as if it were certain: their 95 %\n"
        "intervals cover far less than 95 %. vi and bayes integrate over the latents."
    )


if __name__ == "__main__":
    main()
