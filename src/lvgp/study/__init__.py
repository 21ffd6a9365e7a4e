"""The paper's numerical studies, and the same protocol on any table: what to run, running it."""

from lvgp.study.builtin import STUDIES
from lvgp.study.cases import Arm, ProblemCase, Study, TableCase
from lvgp.study.results import summarise
from lvgp.study.running import run, stored

__all__ = ["STUDIES", "Arm", "ProblemCase", "Study", "TableCase", "run", "stored", "summarise"]
