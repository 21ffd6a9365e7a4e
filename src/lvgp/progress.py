"""Progress of long work: a bar on a terminal or in a notebook, else a line from time to time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

_SECONDS_A_LINE = 30.0


@contextmanager
def progress_bar(label: str, total: int, enabled: bool) -> Iterator[Callable[[], None]]:
    """Yield a function that advances the bar by one step; silent when nobody watches."""
    with _bar(enabled) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)


@contextmanager
def sampling_bar(chains: int, warmup: int, draws: int, enabled: bool) -> Iterator[SamplingBar]:
    """Yield the bar of Markov chains; it keeps count also when nobody watches."""
    with _bar(enabled, TextColumn("{task.fields[status]}")) as bar:
        yield SamplingBar(bar, chains, warmup, draws)


class SamplingBar:
    """One bar for all chains: draws, step size, divergences, min-ESS, R-hat, time left.

    While sampling, the bar's end is where the chains are expected to be good enough.
    """

    def __init__(self, bar: Progress, chains: int, warmup: int, draws: int) -> None:
        self._bar, self._chains, self._most = bar, chains, chains * draws
        self._lock = threading.Lock()
        self._quality = ""
        self._divergences = 0
        self.gradients = 0
        """Evaluations of the gradient so far."""
        self._task = bar.add_task("warming up", total=chains * warmup, status="")

    def on_run(self, count: int, record: Any) -> None:
        """Take note of a run of one chain."""
        with self._lock:
            self.gradients += int(record.steps.sum())
            self._divergences += int(record.divergent.sum())
            status = f"step {record.step.mean():.2g}, {self._divergences} divergent{self._quality}"
            self._bar.update(self._task, advance=count, status=status)

    def sampling(self, draws: int) -> None:
        """Say that the chains now sample, and that they may be good enough at `draws`."""
        task = self._bar.tasks[self._task]
        if task.description != "sampling":
            self._divergences = 0
            self._bar.reset(self._task, description="sampling", total=self._most)
        self._bar.update(self._task, total=self._chains * draws)

    def status(self, least_ess: float, most_r_hat: float) -> None:
        """Show the quality reached so far."""
        self._quality = f", min-ESS {least_ess:.0f}, R-hat {most_r_hat:.3f}"


@contextmanager
def _bar(enabled: bool, *columns: ProgressColumn) -> Iterator[Progress]:
    console = Console(stderr=True)
    shown = enabled and (console.is_terminal or console.is_jupyter)
    usual = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        *columns,
        TimeRemainingColumn(),
    )
    bar = Progress(*usual, console=console, transient=True, disable=not shown)
    with bar, _lines(bar, enabled and not shown):
        yield bar


@contextmanager
def _lines(bar: Progress, enabled: bool) -> Iterator[None]:
    """Write a line to stderr every half minute: a log file should show signs of life too."""
    done = threading.Event()

    def write() -> None:
        while not done.wait(_SECONDS_A_LINE):
            for task in bar.tasks:
                status = f" {task.fields.get('status', '')}".rstrip()
                text = f"{task.description}: {task.completed:.0f} of {task.total:.0f}{status}"
                print(text, file=sys.stderr, flush=True)

    writer = threading.Thread(target=write, daemon=True)
    if enabled:
        writer.start()
    try:
        yield
    finally:
        done.set()
        if enabled:
            writer.join()
