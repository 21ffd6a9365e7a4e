"""Predictions for long tables from many draws fit in bounded memory."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import sys
    from pathlib import Path
    import numpy as np
    from lvgp.infer.draws import Draws
    from lvgp.model import Model
    from lvgp.posterior import Posterior
    from lvgp.priors import Priors
    from lvgp.space import Encoded

    rows, draws = int(sys.argv[1]), int(sys.argv[2])
    rng = np.random.default_rng(0)
    model = Model(3, (10,), (2,))
    vectors = 0.5 * rng.standard_normal((draws, model.size))
    vectors[:, 1] -= 3.0
    training = Encoded(rng.random((100, 3)), rng.integers(0, 10, (100, 1)))
    posterior = Posterior(
        model, Priors(), Draws("bayes", vectors, np.zeros(draws), 0), training,
        rng.standard_normal(100), 0.0, 1.0,
    )
    new = Encoded(rng.random((rows, 3)), rng.integers(0, 10, (rows, 1)))
    found = posterior.summary(new, np.array([0.025, 0.975]))
    assert np.isfinite(found.quantiles).all()
    # getrusage would give the peak of the process that started this one, where that is higher
    print(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
"""


def peak_kilobytes(rows: int, draws: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(rows), str(draws)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak where Linux has it")
def test_memory_does_not_grow_with_the_table():
    """Sixty thousand means and sds of 100 draws would take 96 MB if held at once."""
    few, many = peak_kilobytes(4_000, 100), peak_kilobytes(60_000, 100)
    assert many - few < 40_000


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak where Linux has it")
def test_a_hundred_thousand_rows_from_a_thousand_draws_take_less_than_a_gigabyte():
    assert peak_kilobytes(100_000, 1_000) < 1_000_000
