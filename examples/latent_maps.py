"""Draw the pictures of docs/latent-maps.md: borehole, and M2AX phases where LVGP_DATA is set.

python examples/latent_maps.py docs/images
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import lvgp
from lvgp import plots


def save(name: str, folder: Path) -> None:
    plt.gcf().savefig(folder / f"{name}.png", dpi=110)
    plt.close("all")
    print(folder / f"{name}.png")


def borehole(folder: Path) -> None:
    problem = lvgp.problems.borehole()
    X, y = problem.design(per_level=2, seed=0)
    settings = {"bounds": dict(problem.bounds), "random_state": 0}
    model = lvgp.LVGPRegressor(**settings).fit(X, y)
    latent = model.latent_map("t")
    plots.truth_beside_map(latent, problem.levels_truth)
    save("borehole-truth", folder)
    plots.single_draw_maps(latent)
    save("borehole-draws", folder)
    estimate = lvgp.LVGPRegressor("map", **settings).fit(X, y).latent_map("t")
    _, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4.4), layout="constrained")
    plots.latent_map(estimate, left).set_title("MAP: one estimate")
    plots.latent_map(latent, right).set_title("full Bayes: representative map")
    save("borehole-map-bayes", folder)
    X_new, y_new = problem.sample(60, seed=1)
    plots.observed_against_predicted(y_new, model.predict_interval(X_new))
    save("borehole-predicted", folder)
    X_new, y_new = problem.sample(1000, seed=1)
    probabilities = np.concatenate([np.arange(1, 10), np.arange(11, 20)]) / 20
    plots.calibration(y_new, model.predict_quantiles(X_new, probabilities), label="full Bayes")
    save("borehole-calibration", folder)


def m2ax(folder: Path) -> None:
    table = pd.read_csv(Path(os.environ["LVGP_DATA"]) / "m2ax" / "m2ax.csv")
    chosen = np.random.RandomState(100).choice(len(table), 100, replace=False)
    X, y = table.loc[chosen, ["M", "A", "X"]], table.loc[chosen, "shear_modulus_GPa"]
    model = lvgp.LVGPRegressor(random_state=0).fit(X, y)
    _, axes = plt.subplots(1, 2, figsize=(10.5, 5), layout="constrained")
    for ax, column in zip(axes, ("M", "A"), strict=True):
        model.latent_map(column).plot(ax)
    save("m2ax-maps", folder)
    plots.correlation_map(model.latent_map("M"))
    save("m2ax-correlation", folder)
    plots.traces(model.to_arviz())
    save("m2ax-traces", folder)
    print(model.latent_map("M").nearest("Nb", 4))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    borehole(target)
    if "LVGP_DATA" in os.environ:
        m2ax(target)
