"""The cases that benchmarks share: test problems, and real tables where LVGP_DATA names them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from lvgp import LVGPRegressor, metrics, problems
from lvgp.model import Model
from lvgp.space import Encoded, Space, build_space


class Case(NamedTuple):
    """Training and test rows of one data set."""

    name: str
    space: Space
    X: pd.DataFrame
    y: np.ndarray
    X_test: pd.DataFrame
    y_test: np.ndarray

    @property
    def encoded(self) -> Encoded:
        """The training rows as arrays."""
        return self.space.encode(self.X)

    @property
    def standardised(self) -> np.ndarray:
        """The training response with mean 0 and sd 1."""
        return (self.y - self.y.mean()) / self.y.std(ddof=1)

    @property
    def model(self) -> Model:
        """The model of these columns."""
        levels = tuple(len(column.levels) for column in self.space.qualitative)
        return Model(len(self.space.quantitative), levels, (2,) * len(levels))


def m2ax(target: str, seed: int = 100) -> Case:
    """Return M2AX phases, 100 training rows of 223; target "shear", "bulk" or "youngs"."""
    table = pd.read_csv(Path(os.environ["LVGP_DATA"]) / "m2ax" / "m2ax.csv")
    chosen = np.random.RandomState(seed).choice(len(table), 100, replace=False)
    rest = np.setdiff1d(np.arange(len(table)), chosen)
    X, y = table[["M", "A", "X"]], table[f"{target}_modulus_GPa"].to_numpy(float)
    train = X.iloc[chosen]
    return Case(f"m2ax {target}", build_space(train), train, y[chosen], X.iloc[rest], y[rest])


def abo3(seed: int = 100, rows: int = 1000, target: str = "formation_energy_eV_per_atom") -> Case:
    """Return ABO3 perovskites, `rows` training rows of 5276; all 73 levels of a site declared."""
    table = pd.read_csv(Path(os.environ["LVGP_DATA"]) / "abo3" / "abo3.csv")
    chosen = np.random.RandomState(seed).choice(len(table), rows, replace=False)
    rest = np.setdiff1d(np.arange(len(table)), chosen)
    X, y = table[["A", "B"]], table[target].to_numpy(float)
    levels = {name: sorted(X[name].unique()) for name in X}
    train = X.iloc[chosen]
    space = build_space(train, levels=levels)
    return Case(f"abo3 {rows}", space, train, y[chosen], X.iloc[rest], y[rest])


def problem(name: str, per_level: int, seed: int = 0) -> Case:
    """Return a design of a test problem with 1000 test points."""
    made = getattr(problems, name)()
    X, y = made.design(per_level=per_level, seed=seed)
    X_test, y_test = made.sample(1000, seed=10_000 + seed)
    return Case(f"{name} {len(y)}", made.space, X, np.asarray(y), X_test, np.asarray(y_test))


def fitted(model: LVGPRegressor, case: Case) -> dict[str, object]:
    """Fit, and return scores of the predictions at the test rows, the time taken, the verdict."""
    begun = time.perf_counter()
    model.fit(case.X, case.y)
    seconds = time.perf_counter() - begun
    interval = model.predict_interval(case.X_test)
    found = scores(case, interval["mean"], interval["lower"], interval["upper"])
    return found | {"seconds": seconds, "verdict": model.diagnostics_.verdict}


def scores(case: Case, mean: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> dict[str, object]:
    """Return scores of 95 % intervals for f at the test rows."""
    return {
        "rrmse": metrics.rrmse(case.y_test, mean),
        "interval_score": metrics.mean_interval_score(case.y_test, lower, upper),
        "coverage": metrics.coverage(case.y_test, lower, upper),
    }


def has_tables() -> bool:
    """Whether the directory with the real tables is known."""
    return "LVGP_DATA" in os.environ
