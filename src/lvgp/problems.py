"""Engineering test functions with one qualitative input made from two numeric ones.

Formulas are the standard forms (the paper misprints the piston function): borehole, output
transformerless circuit, piston cycle time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from numbers import Integral

import numpy as np
import pandas as pd
from scipy.stats import qmc

from lvgp.errors import InputError
from lvgp.space import Qualitative, Quantitative, Space

Function = Callable[[Mapping[str, np.ndarray]], np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A test function of numeric columns and of one qualitative column `t`.

    The levels "1", "2", ... of `t` stand for all combinations of the values in `grid`, the first
    variable changing slowest.
    """

    name: str
    function: Function
    bounds: Mapping[str, tuple[float, float]]
    grid: Mapping[str, tuple[float, ...]]

    @property
    def levels(self) -> list[str]:
        """The levels of the qualitative column."""
        return list(self.levels_truth.index)

    @property
    def levels_truth(self) -> pd.DataFrame:
        """The numeric values that each level stands for: the true space behind the levels."""
        combinations = list(product(*self.grid.values()))
        index = pd.Index([str(code + 1) for code in range(len(combinations))], name="t")
        return pd.DataFrame(combinations, columns=list(self.grid), index=index)

    @property
    def space(self) -> Space:
        """The columns, with the problem's own bounds and levels."""
        quantitative = [Quantitative(name, *bounds) for name, bounds in self.bounds.items()]
        counts = (0,) * len(self.levels)
        return Space((*quantitative, Qualitative("t", tuple(self.levels), counts)))

    def __call__(self, X: pd.DataFrame) -> pd.Series:
        """Return the response at the rows of X."""
        if not isinstance(X, pd.DataFrame):
            raise InputError(f"X: expected a DataFrame with columns {self.space.names}")
        codes = self.space.encode(X).t[:, 0]
        values = {name: X[name].to_numpy(dtype=float) for name in self.bounds}
        truth = self.levels_truth
        values |= {name: truth[name].to_numpy()[codes] for name in self.grid}
        return pd.Series(self.function(values), index=X.index, name="y")

    def design(self, per_level: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
        """Return a training set: Latin hypercube over the numbers, each level equally often."""
        _check_count("per_level", per_level)
        rng = np.random.default_rng(seed)
        codes = rng.permutation(np.repeat(np.arange(len(self.levels)), per_level))
        unit = qmc.LatinHypercube(len(self.bounds), rng=rng).random(len(codes))
        return self._table(unit, codes)

    def sample(self, rows: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
        """Return uniformly distributed rows, for testing."""
        _check_count("rows", rows)
        rng = np.random.default_rng(seed)
        codes = rng.integers(len(self.levels), size=rows)
        return self._table(rng.random((rows, len(self.bounds))), codes)

    def _table(self, unit: np.ndarray, codes: np.ndarray) -> tuple[pd.DataFrame, pd.Series]:
        low, high = np.array(list(self.bounds.values())).T
        X = pd.DataFrame(low + unit * (high - low), columns=list(self.bounds))
        X["t"] = pd.Categorical([self.levels[code] for code in codes], categories=self.levels)
        return X, self(X)


def _check_count(name: str, value: int) -> None:
    if not isinstance(value, Integral) or value < 1:
        raise InputError(f"{name}: expected a positive integer, got {value!r}")


def _equally_spaced(low: float, high: float, number: int) -> tuple[float, ...]:
    return tuple(float(value) for value in np.linspace(low, high, number))


def borehole() -> Problem:
    """Water flow through a borehole; 16 levels from r_w (4) and H_l (4)."""
    return Problem(
        name="borehole",
        function=_borehole,
        bounds={
            "r": (100.0, 50000.0),
            "T_u": (63070.0, 115600.0),
            "H_u": (990.0, 1110.0),
            "T_l": (63.1, 116.0),
            "L": (1120.0, 1680.0),
            "K_w": (9855.0, 12045.0),
        },
        grid={"r_w": _equally_spaced(0.05, 0.15, 4), "H_l": _equally_spaced(700.0, 820.0, 4)},
    )


def _borehole(v: Mapping[str, np.ndarray]) -> np.ndarray:
    log_ratio = np.log(v["r"] / v["r_w"])
    resistance = 2.0 * v["L"] * v["T_u"] / (log_ratio * v["r_w"] ** 2 * v["K_w"])
    numerator = 2.0 * np.pi * v["T_u"] * (v["H_u"] - v["H_l"])
    return numerator / (log_ratio * (1.0 + resistance + v["T_u"] / v["T_l"]))


def otl_circuit() -> Problem:
    """Midpoint voltage of an output transformerless circuit; 18 levels from R_f (6) and B (3)."""
    return Problem(
        name="otl_circuit",
        function=_otl_circuit,
        bounds={
            "R_b1": (50.0, 150.0),
            "R_b2": (25.0, 70.0),
            "R_c1": (1.2, 2.5),
            "R_c2": (0.25, 1.2),
        },
        grid={"R_f": _equally_spaced(0.5, 3.0, 6), "B": _equally_spaced(50.0, 300.0, 3)},
    )


def _otl_circuit(v: Mapping[str, np.ndarray]) -> np.ndarray:
    base_voltage = 12.0 * v["R_b2"] / (v["R_b1"] + v["R_b2"])
    gain = v["B"] * (v["R_c2"] + 9.0)
    total = gain + v["R_f"]
    voltage = (base_voltage + 0.74) * gain / total + 11.35 * v["R_f"] / total
    return voltage + 0.74 * v["R_f"] * gain / (total * v["R_c1"])


def piston() -> Problem:
    """Cycle time of a piston; 20 levels from P_0 (4) and k (5)."""
    return Problem(
        name="piston",
        function=_piston,
        bounds={
            "M": (30.0, 60.0),
            "S": (0.005, 0.020),
            "V_0": (0.002, 0.010),
            "T_a": (290.0, 296.0),
            "T_0": (340.0, 360.0),
        },
        grid={
            "P_0": _equally_spaced(90000.0, 110000.0, 4),
            "k": _equally_spaced(1000.0, 5000.0, 5),
        },
    )


def _piston(v: Mapping[str, np.ndarray]) -> np.ndarray:
    force = v["P_0"] * v["S"] + 19.62 * v["M"] - v["k"] * v["V_0"] / v["S"]
    gas = v["P_0"] * v["V_0"] * v["T_a"] / v["T_0"]
    volume = v["S"] / (2.0 * v["k"]) * (np.sqrt(force**2 + 4.0 * v["k"] * gas) - force)
    return 2.0 * np.pi * np.sqrt(v["M"] / (v["k"] + v["S"] ** 2 * gas / volume**2))
