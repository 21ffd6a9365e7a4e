"""Test problems against formulas written again in plain arithmetic, and the designs' properties."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lvgp import problems
from lvgp.errors import InputError
from lvgp.problems import Problem

PI = math.pi


def borehole(
    r: float,
    T_u: float,
    H_u: float,
    T_l: float,
    L: float,
    K_w: float,
    r_w: float,
    H_l: float,
) -> float:
    ratio = math.log(r) - math.log(r_w)
    top = 2 * PI * T_u * (H_u - H_l)
    bottom = ratio * (1 + 2 * L * T_u / (ratio * r_w * r_w * K_w) + T_u / T_l)
    return top / bottom


def otl_circuit(R_b1: float, R_b2: float, R_c1: float, R_c2: float, R_f: float, B: float) -> float:
    V_b1 = 12 * R_b2 / (R_b1 + R_b2)
    below = B * (R_c2 + 9) + R_f
    first = (V_b1 + 0.74) * B * (R_c2 + 9) / below
    second = 11.35 * R_f / below
    third = 0.74 * R_f * B * (R_c2 + 9) / (below * R_c1)
    return first + second + third


def piston(M: float, S: float, V_0: float, T_a: float, T_0: float, P_0: float, k: float) -> float:
    A = P_0 * S + 19.62 * M - k * V_0 / S
    V = S / (2 * k) * (math.sqrt(A * A + 4 * k * P_0 * V_0 / T_0 * T_a) - A)
    return 2 * PI * math.sqrt(M / (k + S * S * P_0 * V_0 / T_0 * T_a / (V * V)))


FORMULAS: dict[str, Callable[..., float]] = {
    "borehole": borehole,
    "otl_circuit": otl_circuit,
    "piston": piston,
}
BOUNDS = {
    "borehole": {
        "r": (100, 50000),
        "T_u": (63070, 115600),
        "H_u": (990, 1110),
        "T_l": (63.1, 116),
        "L": (1120, 1680),
        "K_w": (9855, 12045),
    },
    "otl_circuit": {
        "R_b1": (50, 150),
        "R_b2": (25, 70),
        "R_c1": (1.2, 2.5),
        "R_c2": (0.25, 1.2),
    },
    "piston": {
        "M": (30, 60),
        "S": (0.005, 0.020),
        "V_0": (0.002, 0.010),
        "T_a": (290, 296),
        "T_0": (340, 360),
    },
}
LEVELS: dict[str, dict[str, list[float]]] = {
    "borehole": {
        "r_w": [0.05, 0.05 + 0.1 / 3, 0.05 + 0.2 / 3, 0.15],
        "H_l": [700, 740, 780, 820],
    },
    "otl_circuit": {"R_f": [0.5, 1, 1.5, 2, 2.5, 3], "B": [50, 175, 300]},
    "piston": {
        "P_0": [90000, 90000 + 20000 / 3, 90000 + 40000 / 3, 110000],
        "k": [1000, 2000, 3000, 4000, 5000],
    },
}
NAMES = list(FORMULAS)


@pytest.fixture(params=NAMES)
def problem(request: pytest.FixtureRequest) -> Problem:
    return getattr(problems, request.param)()


def _truth(problem: Problem) -> dict[str, tuple[float, ...]]:
    """Level -> the numbers behind it, the first variable changing slowest."""
    values = list(LEVELS[problem.name].values())
    return {str(code): pair for code, pair in enumerate(product(*values), start=1)}


def _expected(problem: Problem, X: pd.DataFrame) -> list[float]:
    truth, hidden = _truth(problem), list(LEVELS[problem.name])
    rows = []
    for row in X.to_dict("records"):
        values = dict(zip(hidden, truth[row.pop("t")], strict=True))
        rows.append(FORMULAS[problem.name](**row, **values))
    return rows


def test_response_is_the_formula(problem: Problem) -> None:
    X, y = problem.sample(400, seed=3)
    assert set(X["t"]) == set(problem.levels)
    np.testing.assert_allclose(y, _expected(problem, X), rtol=1e-12)
    np.testing.assert_allclose(problem(X), y, rtol=0)


def test_response_at_the_corners_is_the_formula(problem: Problem) -> None:
    corners = list(product(*BOUNDS[problem.name].values()))
    X = pd.DataFrame(
        [(*corner, level) for corner in corners for level in problem.levels],
        columns=[*BOUNDS[problem.name], "t"],
    )
    np.testing.assert_allclose(problem(X), _expected(problem, X), rtol=1e-12)


def test_piston_volume_solves_its_equation() -> None:
    """V is the equilibrium k V^2 / S^2 + A V / S = P_0 V_0 T_a / T_0: the root needs the k in it.

    From the response C, k + S^2 P_0 V_0 T_a / (T_0 V^2) = M (2 pi / C)^2 gives V back.
    """
    problem = problems.piston()
    X, y = problem.sample(50, seed=0)
    behind = problem.levels_truth.loc[X["t"]].reset_index(drop=True)
    P_0, k = behind["P_0"], behind["k"]
    gas = P_0 * X["V_0"] * X["T_a"] / X["T_0"]
    V = X["S"] * np.sqrt(gas / (X["M"] * (2 * PI / y) ** 2 - k))
    A = P_0 * X["S"] + 19.62 * X["M"] - k * X["V_0"] / X["S"]
    np.testing.assert_allclose(k * (V / X["S"]) ** 2 + A * V / X["S"], gas, rtol=1e-9)


@pytest.mark.parametrize(("name", "count"), [("borehole", 16), ("otl_circuit", 18), ("piston", 20)])
def test_levels_and_the_numbers_behind_them(name: str, count: int) -> None:
    problem = getattr(problems, name)()
    assert problem.name == name
    assert problem.levels == [str(code) for code in range(1, count + 1)]
    table = problem.levels_truth
    assert list(table.index) == problem.levels
    assert table.index.name == "t"
    assert list(table.columns) == list(LEVELS[name])
    np.testing.assert_allclose(table.to_numpy(), list(_truth(problem).values()), rtol=1e-14)


def test_space_is_the_problems_own(problem: Problem) -> None:
    space = problem.space
    bounds = {column.name: (column.low, column.high) for column in space.quantitative}
    assert bounds == BOUNDS[problem.name]
    (column,) = space.qualitative
    assert (column.name, list(column.levels)) == ("t", problem.levels)
    assert space.names == [*BOUNDS[problem.name], "t"]


@pytest.mark.parametrize("per_level", [1, 2, 3, 4])
def test_design_is_a_latin_hypercube_with_equal_level_counts(
    problem: Problem, per_level: int
) -> None:
    X, y = problem.design(per_level, seed=per_level)
    rows = per_level * len(problem.levels)
    assert list(X.columns) == problem.space.names
    assert list(X["t"].cat.categories) == problem.levels
    assert (X["t"].value_counts() == per_level).all()
    assert (len(X), len(y), y.name) == (rows, rows, "y")
    for name, (low, high) in BOUNDS[problem.name].items():
        strata = np.floor((X[name] - low) / (high - low) * rows)
        assert sorted(strata) == list(range(rows)), name
    np.testing.assert_allclose(y, _expected(problem, X), rtol=1e-12)


def test_columns_and_levels_of_a_design_are_shuffled_separately(problem: Problem) -> None:
    """240 rows and more: each rank correlation within 5 sds, 1 / sqrt(rows - 1), of zero.

    At most 21 pairs in each of 3 problems at 6e-7 each: a false alarm in 4e-5 of all seeds.
    """
    X, _ = problem.design(15, seed=8)
    ranks = X.assign(t=X["t"].cat.codes).rank()
    correlations = ranks.corr().to_numpy()[np.triu_indices(X.shape[1], 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(len(X) - 1)


def test_points_of_a_design_are_random_within_their_strata(problem: Problem) -> None:
    X, _ = problem.design(15, seed=9)
    for name, (low, high) in BOUNDS[problem.name].items():
        places = (X[name] - low) / (high - low) * len(X) % 1.0
        assert stats.kstest(places, "uniform").pvalue > 1e-6, name


def test_sample_is_uniform(problem: Problem) -> None:
    """Kolmogorov-Smirnov and chi-squared tests: at most 7 at 1e-6 for each of 3 problems."""
    X, y = problem.sample(2000, seed=4)
    assert list(X.columns) == problem.space.names
    assert (len(X), len(y), y.name) == (2000, 2000, "y")
    for name, (low, high) in BOUNDS[problem.name].items():
        assert stats.kstest(X[name], "uniform", args=(low, high - low)).pvalue > 1e-6, name
    counts = X["t"].value_counts().reindex(problem.levels)
    assert stats.chisquare(counts).pvalue > 1e-6
    assert counts.nunique() > 1, "uniform draws do not come out equally often"


@pytest.mark.parametrize("draw", ["design", "sample"])
def test_tables_repeat_by_seed_and_only_by_seed(problem: Problem, draw: str) -> None:
    def made(seed: int) -> tuple[pd.DataFrame, pd.Series]:
        return getattr(problem, draw)(2, seed=seed)

    np.random.seed(0)  # noqa: NPY002 - the global state must neither matter nor be touched
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    first = made(1)
    assert (np.random.get_state()[1] == state).all()  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    pd.testing.assert_frame_equal(made(1)[0], first[0], check_exact=True)
    pd.testing.assert_series_equal(made(1)[1], first[1], check_exact=True)
    assert not made(2)[0].drop(columns="t").equals(first[0].drop(columns="t"))


def test_response_keeps_the_index_and_finds_columns_by_name(problem: Problem) -> None:
    X, y = problem.sample(7, seed=0)
    turned = X.set_axis(list("gfedcba"))[X.columns[::-1]]
    result = problem(turned)
    assert list(result.index) == list("gfedcba")
    assert list(result) == list(y)


def test_response_takes_levels_as_plain_text(problem: Problem) -> None:
    X, y = problem.sample(7, seed=0)
    assert list(problem(X.assign(t=X["t"].astype(str)))) == list(y)


def test_problems_are_frozen_values_without_shared_state() -> None:
    problem = problems.borehole()
    table = problem.levels_truth
    table.iloc[0, 0] = 99.0
    assert problem.levels_truth.iloc[0, 0] == 0.05
    with pytest.raises(AttributeError):
        problem.name = "other"  # type: ignore[misc]


def test_borehole_agrees_with_the_reference_table(reference_directory: Path) -> None:
    """Responses from another implementation; its levels count from 0."""
    table = pd.read_csv(reference_directory / "borehole-32.train.csv")
    assert sorted(table["t"].unique()) == list(range(16))
    X = table.drop(columns="y").assign(t=(table["t"] + 1).astype(str))
    np.testing.assert_allclose(problems.borehole()(X), table["y"], rtol=1e-12)


@pytest.mark.parametrize(("draw", "option"), [("design", "per_level"), ("sample", "rows")])
@pytest.mark.parametrize("number", [0, -1, 1.5, "2", None, math.nan])
def test_number_of_rows_must_be_a_positive_integer(draw: str, option: str, number: Any) -> None:
    with pytest.raises(InputError, match=f"^{option}: expected a positive"):
        getattr(problems.piston(), draw)(number, seed=0)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda X: X.drop(columns="M"), "missing.*'M'", id="missing column"),
        pytest.param(lambda X: X.assign(other=1.0), "not expected.*'other'", id="other column"),
        pytest.param(lambda X: X.assign(t="21"), "'t'.*unknown level '21'", id="unknown level"),
        pytest.param(lambda X: X.assign(t="0"), "'t'.*unknown level '0'", id="level 0"),
        pytest.param(lambda X: X.assign(M=math.nan), "'M'.*missing", id="missing value"),
        pytest.param(lambda X: X.assign(M="heavy"), "'M'.*expected numbers", id="text"),
        pytest.param(lambda X: X.to_numpy(), "DataFrame|column names", id="array"),
    ],
)
def test_bad_table_is_refused_by_column(change: Callable[[pd.DataFrame], Any], said: str) -> None:
    X, _ = problems.piston().sample(4, seed=0)
    with pytest.raises(InputError, match=said):
        problems.piston()(change(X))
