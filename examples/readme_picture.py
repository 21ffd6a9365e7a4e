"""Draw the picture of the README: predictions of the borehole function, and its latent map.

python examples/readme_picture.py docs/images/borehole.png
"""

from __future__ import annotations

import sys
import warnings

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

import lvgp


def main(path: str) -> None:
    problem = lvgp.problems.borehole()
    X, y = problem.design(per_level=4, seed=0)
    X_new, truth = problem.sample(150, seed=1)
    model = lvgp.LVGPRegressor(method="map", bounds=dict(problem.bounds), random_state=0)
    model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lvgp.errors.PlugInIntervalWarning)
        interval = model.predict_interval(X_new)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")

    ends = [truth.min(), truth.max()]
    left.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
    reach = [interval["mean"] - interval.lower, interval.upper - interval["mean"]]
    left.errorbar(truth, interval["mean"], yerr=reach, fmt="o", markersize=3, linewidth=0.8)
    left.set(xlabel="true flow (m³/year)", ylabel="predicted, with 95 % intervals")
    left.set_title("64 training rows, 150 new ones", fontsize=10)

    latents = model.parameters_["latents"]["t"]
    latents -= latents.mean()
    longest_first = np.linalg.svd(latents.to_numpy(), full_matrices=False)[2]
    latents = latents @ longest_first.T
    radius = problem.levels_truth["r_w"]
    for marker, (value, group) in zip("osD^", latents.groupby(radius), strict=True):
        right.scatter(group[0], group[1], marker=marker, s=60, label=f"{value:.3f} m")
    for level, (first, second) in latents.iterrows():
        right.annotate(level, (first, second), xytext=(4, 4), textcoords="offset points", size=8)
    right.set(xlabel="latent 1", ylabel="latent 2")
    right.set_aspect("equal", adjustable="datalim")
    right.set_title("where the model puts the 16 levels of t", fontsize=10)
    right.legend(title="borehole radius (unknown to it)", ncols=2, fontsize=8, title_fontsize=8)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1])
