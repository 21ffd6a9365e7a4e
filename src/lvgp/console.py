"""What the commands share: errors as one line, lists by commas."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from lvgp.errors import LVGPError

# XLA calls a slow compilation an error and asks for a bug report; true failures raise
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

ERRORS = Console(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn errors into one line and an exit code: 2 the call or the data, 1 the work itself."""
    try:
        yield
    except (LVGPError, OSError) as error:
        wrong_call = isinstance(error, ValueError | OSError)
        ERRORS.print(
            f"lvgp: {' '.join(str(error).split())}", style="red", markup=False, soft_wrap=True
        )
        raise typer.Exit(2 if wrong_call else 1) from None
    except KeyboardInterrupt:
        ERRORS.print("lvgp: interrupted", style="red")
        raise typer.Exit(1) from None


def words(texts: list[str] | None) -> list[str]:
    """Return what stands between the commas of an option that may be given more than once."""
    return [word.strip() for text in texts or [] for word in text.split(",") if word.strip()]
