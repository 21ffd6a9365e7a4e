"""Scores against numerical integration, other people's formulas and numbers worked by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, optimize, stats

from lvgp import metrics
from lvgp.errors import InputError

SCORES: dict[str, tuple[Callable[..., float], tuple[str, ...]]] = {
    "rrmse": (metrics.rrmse, ("y", "mean")),
    "mean_interval_score": (metrics.mean_interval_score, ("y", "lower", "upper")),
    "coverage": (metrics.coverage, ("y", "lower", "upper")),
    "crps": (metrics.crps, ("y", "mean", "sd")),
    "nlpd": (metrics.nlpd, ("y", "mean", "sd")),
}
GOOD = {
    "y": [1.0, 2.0, 4.0],
    "mean": [1.5, 2.0, 3.0],
    "sd": [0.5, 1.0, 2.0],
    "lower": [0.0, 1.0, 2.0],
    "upper": [3.0, 3.0, 3.0],
}


def _arguments(score: str, **changed: Any) -> dict[str, Any]:
    return {name: changed.get(name, GOOD[name]) for name in SCORES[score][1]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # spread of y: 1 + 1 = 2; errors: 0.25 + 0.25 = 0.5
        pytest.param(metrics.rrmse([0, 1, 2], [0.5, 1, 2.5]), 0.5, id="rrmse"),
        pytest.param(metrics.rrmse([0, 1, 2], [1, 1, 1]), 1.0, id="rrmse of the average"),
        pytest.param(metrics.rrmse([3, 5], [3, 5]), 0.0, id="rrmse of the truth"),
        pytest.param(metrics.rrmse([0, 2], [-2, 4]), 2.0, id="rrmse worse than the average"),
        # widths 2, 2, 2; misses 0, 1 below, 3 above at 2 / 0.05 = 40 each
        pytest.param(
            metrics.mean_interval_score([1, -1, 5], [0, 0, 0], [2, 2, 2]),
            (2 + 2 + 40 * 1 + 2 + 40 * 3) / 3,
            id="interval score at 95 %",
        ),
        # 2 / 0.5 = 4 for each unit outside
        pytest.param(
            metrics.mean_interval_score([1, -1], [0, 0], [2, 4], coverage=0.5),
            (2 + 4 + 4 * 1) / 2,
            id="interval score at 50 %",
        ),
        pytest.param(metrics.mean_interval_score([2], [2], [2]), 0.0, id="interval of no width"),
        pytest.param(metrics.coverage([1, 2, 3, 4], [1, 0, 4, 0], [2, 2, 5, 3]), 0.5, id="ends"),
        pytest.param(metrics.coverage([0], [1], [2]), 0.0, id="below"),
        # s [0 + 2 phi(0) - 1 / sqrt(pi)] = s (sqrt(2) - 1) / sqrt(pi)
        pytest.param(
            metrics.crps([7, 7], [7, 7], [1, 3]),
            2 * (math.sqrt(2) - 1) / math.sqrt(math.pi),
            id="crps at the mean",
        ),
        # far away the score is the absolute error less s / sqrt(pi)
        pytest.param(
            metrics.crps([100, -100], [0, 0], [1, 2]),
            100 - 1.5 / math.sqrt(math.pi),
            id="crps far away",
        ),
        pytest.param(
            metrics.nlpd([2, 1], [0, 1], [1, math.e]),
            (2 + 1) / 2 + 0.5 * math.log(2 * math.pi),
            id="nlpd",
        ),
    ],
)
def test_numbers_worked_by_hand(value: float, expected: float) -> None:
    assert type(value) is float
    assert value == pytest.approx(expected, rel=1e-14, abs=1e-15)


NORMALS = [(0.3, 0.0, 1.0), (-2.0, 0.5, 0.7), (5.0, 1.0, 2.5), (1e-3, 0.0, 1e-2), (1e4, 9e3, 3e2)]


@pytest.mark.parametrize(("y", "mean", "sd"), NORMALS)
def test_crps_is_the_integrated_error_of_the_distribution_function(
    y: float, mean: float, sd: float
) -> None:
    """The definition: the integral of (F(x) - 1{x >= y})^2."""
    predicted = stats.norm(mean, sd)
    ends = sorted([mean - 12 * sd, mean, y, mean + 12 * sd])
    low, high = min(ends), max(ends)
    below, _ = integrate.quad(lambda x: predicted.cdf(x) ** 2, low, y, points=[mean], limit=200)
    above, _ = integrate.quad(lambda x: predicted.sf(x) ** 2, y, high, points=[mean], limit=200)
    assert metrics.crps([y], [mean], [sd]) == pytest.approx(below + above, rel=1e-8)


@pytest.mark.parametrize("number", range(20))
def test_crps_is_the_expected_distance_less_half_the_spread(number: int) -> None:
    """The other form: E|X - y| - E|X - X'| / 2, the second term being sd / sqrt(pi)."""
    y, mean, log_sd = np.random.default_rng(number).normal(size=3)
    sd = math.exp(log_sd)
    distance = stats.foldnorm.mean(abs(mean - y) / sd, scale=sd)
    expected = distance - sd / math.sqrt(math.pi)
    assert metrics.crps([y], [mean], [sd]) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize(("y", "mean", "sd"), NORMALS)
def test_nlpd_is_scipys(y: float, mean: float, sd: float) -> None:
    assert metrics.nlpd([y], [mean], [sd]) == pytest.approx(-stats.norm.logpdf(y, mean, sd))


@pytest.mark.parametrize("number", range(5))
def test_rrmse_is_the_error_over_the_sd_of_y(number: int) -> None:
    rng = np.random.default_rng(number)
    y, mean = rng.normal(3, 2, 30), rng.normal(3, 2, 30)
    expected = math.sqrt(np.mean((y - mean) ** 2)) / np.std(y)
    assert metrics.rrmse(y, mean) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.95])
def test_interval_score_is_the_two_quantile_losses(coverage: float) -> None:
    """(l, u) score 2 / alpha times the pinball losses of l and u at alpha / 2 and 1 - alpha / 2."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=50)
    lower, upper = np.sort(rng.normal(size=(2, 50)), axis=0)
    alpha = 1 - coverage

    def pinball(quantile: np.ndarray, level: float) -> np.ndarray:
        return np.where(y < quantile, (1 - level) * (quantile - y), level * (y - quantile))

    expected = 2 / alpha * np.mean(pinball(lower, alpha / 2) + pinball(upper, 1 - alpha / 2))
    score = metrics.mean_interval_score(y, lower, upper, coverage)
    assert score == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("score", SCORES)
def test_score_of_a_table_is_the_mean_of_its_rows(score: str) -> None:
    """Not so for rrmse, whose square is: its rows share one spread."""
    function, names = SCORES[score]
    if score == "rrmse":
        rows = [(y - mean) ** 2 for y, mean in zip(GOOD["y"], GOOD["mean"], strict=True)]
        spread = 3 * np.var(GOOD["y"])
        assert metrics.rrmse(GOOD["y"], GOOD["mean"]) ** 2 == pytest.approx(sum(rows) / spread)
        return
    alone = [function(*([GOOD[name][row]] for name in names)) for row in range(3)]
    assert function(**_arguments(score)) == pytest.approx(np.mean(alone), rel=1e-12)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "kind",
    [np.array, tuple, lambda v: pd.Series(v, index=[9, 8, 7]), lambda v: np.array(v, "float32")],
)
def test_any_kind_of_array_is_taken_by_position(score: str, kind: Callable[[Any], Any]) -> None:
    function, names = SCORES[score]
    expected = function(**_arguments(score))
    assert function(*(kind(GOOD[name]) for name in names)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("score", SCORES)
def test_shift_of_everything_changes_no_score_and_scale_does_what_it_should(score: str) -> None:
    function, names = SCORES[score]
    shifted = {n: np.array(GOOD[n]) + (0.0 if n == "sd" else 8.0) for n in names}
    scaled = {name: 4.0 * np.array(GOOD[name]) for name in names}
    value = function(**_arguments(score))
    assert function(**shifted) == pytest.approx(value, rel=1e-12)
    expected = {"rrmse": value, "coverage": value, "nlpd": value + math.log(4.0)}
    assert function(**scaled) == pytest.approx(expected.get(score, 4.0 * value), rel=1e-12)


def _expected_interval_score(low: float, high: float, coverage: float) -> float:
    """Of [low, high] for a standard normal response, in closed form."""
    normal, penalty = stats.norm, 2 / (1 - coverage)
    below = normal.pdf(low) + low * normal.cdf(low)
    above = normal.pdf(high) - high * normal.sf(high)
    return high - low + penalty * (below + above)


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.95])
def test_interval_score_is_least_at_the_true_quantiles(coverage: float) -> None:
    """100,000 responses from N(0, 1), the true central interval against twelve others.

    Each average must lie within 5 standard errors of its expectation and each other interval must
    score worse. By the normal approximation the first fails by chance with probability 6e-7 an
    interval; the second is the weaker demand, as the paired difference is expected at more than
    6 of its standard errors (asserted). Together: below 1e-4 over all coverages.
    """
    y = np.random.default_rng(17).standard_normal(100_000)
    tail = (1 - coverage) / 2
    low, high = stats.norm.ppf([tail, 1 - tail])

    def rows(left: float, right: float) -> np.ndarray:
        penalty = 2 / (1 - coverage)
        return right - left + penalty * (np.maximum(left - y, 0) + np.maximum(y - right, 0))

    def score(left: float, right: float) -> float:
        return metrics.mean_interval_score(
            y, np.full_like(y, left), np.full_like(y, right), coverage
        )

    best = score(low, high)
    for step in (0.15, 0.3):
        for down, up in [(-1, 0), (1, 0), (0, -1), (0, 1), (-1, -1), (-1, 1)]:
            left, right = low + step * down, high + step * up
            value = score(left, right)
            expected = _expected_interval_score(left, right, coverage)
            assert abs(value - expected) < 5 * rows(left, right).std() / math.sqrt(len(y))
            difference = rows(left, right) - rows(low, high)
            excess = expected - _expected_interval_score(low, high, coverage)
            assert excess > 6 * difference.std() / math.sqrt(len(y))
            assert value > best


@pytest.mark.parametrize("coverage", [0.5, 0.95])
def test_minimising_the_interval_score_finds_the_quantiles(coverage: float) -> None:
    """On responses at 20,001 equally likely points of a skew distribution."""
    y = stats.gamma(3).ppf((np.arange(20_001) + 0.5) / 20_001)
    tail = (1 - coverage) / 2

    def objective(ends: np.ndarray) -> float:
        low, width = ends[0], math.exp(ends[1])
        return metrics.mean_interval_score(
            y, np.full_like(y, low), np.full_like(y, low + width), coverage
        )

    found = optimize.minimize(
        objective, [2.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}
    ).x
    ends = np.array([found[0], found[0] + math.exp(found[1])])
    np.testing.assert_allclose(ends, stats.gamma(3).ppf([tail, 1 - tail]), rtol=2e-3)


@pytest.mark.parametrize("score", ["crps", "nlpd"])
def test_proper_scores_are_least_at_the_true_normal(score: str) -> None:
    """On responses at equally likely points of N(1, 2^2)."""
    y = stats.norm(1, 2).ppf((np.arange(5001) + 0.5) / 5001)
    function = SCORES[score][0]

    def objective(vector: np.ndarray) -> float:
        return function(y, np.full_like(y, vector[0]), np.full_like(y, math.exp(vector[1])))

    found = optimize.minimize(objective, [0.0, 0.0], method="Nelder-Mead").x
    np.testing.assert_allclose([found[0], math.exp(found[1])], [1.0, 2.0], rtol=5e-3)


def test_coverage_of_true_intervals_is_nominal() -> None:
    """2,000 intervals at 90 %: outside +-4.9 binomial sds with probability 1e-6."""
    rng = np.random.default_rng(2)
    mean = rng.normal(size=2000)
    y = mean + rng.standard_normal(2000)
    half = stats.norm.ppf(0.95)
    share = metrics.coverage(y, mean - half, mean + half)
    assert abs(share - 0.9) < 4.9 * math.sqrt(0.9 * 0.1 / 2000)


CASES = [(score, name) for score, (_, names) in SCORES.items() for name in names]


@pytest.mark.parametrize(("score", "name"), CASES)
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        pytest.param([1.0, math.nan, 3.0], "1 NaN or infinite", id="nan"),
        pytest.param([math.inf, 2.0, -math.inf], "2 NaN or infinite", id="infinite"),
        pytest.param([[1.0], [2.0], [3.0]], "1-d", id="column"),
        pytest.param(1.0, "1-d", id="scalar"),
        pytest.param(None, "1-d", id="none"),
        pytest.param(["a", "b", "c"], "expected", id="text"),
        pytest.param([1.0, [2.0], 3.0], "expected", id="ragged"),
        pytest.param([1.0, 2.0, 3.0 + 1.0j], "expected", id="complex"),
    ],
)
def test_bad_argument_is_named(score: str, name: str, bad: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        SCORES[score][0](**_arguments(score, **{name: bad}))
    assert str(caught.value).startswith(f"{name}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("score", "name"), [case for case in CASES if case[1] != "y"])
@pytest.mark.parametrize("length", [1, 2, 4])
def test_other_length_is_named(score: str, name: str, length: int) -> None:
    with pytest.raises(InputError, match=rf"^{name}: .* length 3, got \({length},\)"):
        SCORES[score][0](**_arguments(score, **{name: [1.0] * length}))


@pytest.mark.parametrize("score", SCORES)
def test_empty_arguments_are_called_empty(score: str) -> None:
    with pytest.raises(InputError, match=r"^y: .*(empty|at least one)"):
        SCORES[score][0](**{name: [] for name in SCORES[score][1]})


@pytest.mark.parametrize("score", ["crps", "nlpd"])
@pytest.mark.parametrize(("sd", "said"), [(0.0, "0"), (-1.5, r"-1\.5")])
def test_sd_must_be_positive(score: str, sd: float, said: str) -> None:
    with pytest.raises(InputError, match=f"^sd: .*positive.* got {said}$"):
        SCORES[score][0](**_arguments(score, sd=[1.0, sd, 2.0]))


@pytest.mark.parametrize("coverage", [0, 1, -0.1, 1.5, 95, math.nan, "0.9", None])
def test_interval_score_needs_a_coverage_between_0_and_1(coverage: Any) -> None:
    with pytest.raises(InputError, match=r"^coverage: .*between 0 and 1"):
        metrics.mean_interval_score([1.0], [0.0], [2.0], coverage)


@pytest.mark.parametrize("score", ["mean_interval_score", "coverage"])
def test_interval_with_its_ends_swapped_is_refused(score: str) -> None:
    with pytest.raises(InputError, match="lower"):
        SCORES[score][0](**_arguments(score, lower=GOOD["upper"], upper=GOOD["lower"]))


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e300, 1 / 3])
@pytest.mark.parametrize("rows", [1, 3, 10])
def test_rrmse_of_a_constant_response_is_refused(value: float, rows: int) -> None:
    """Also where the rounded mean of equal numbers is not that number, as of three times 0.1."""
    with pytest.raises(InputError, match=r"^y: is constant"):
        metrics.rrmse([value] * rows, np.arange(float(rows)))
