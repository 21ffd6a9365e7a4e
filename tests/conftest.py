"""What several test modules share: double precision, real tables where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def directory(variable: str) -> Path:
    """Return the directory a variable names, or skip the test that needs it."""
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: it names the directory with the files of this test")
    return Path(os.environ[variable])


@pytest.fixture(scope="session")
def data_directory() -> Path:
    return directory("LVGP_DATA")


@pytest.fixture(scope="session")
def reference_directory() -> Path:
    return directory("LVGP_REFERENCE")


@pytest.fixture
def double_precision():
    from lvgp import compute

    with compute.scope():
        yield
