"""Each breakage of the embedded BigQuery turns a test of the conformance suite red."""

import pytest

from tests.conformance import mutants
from tests.conformance.mutants import MUTANTS


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_noticed(mutant):
    assert mutants.failures(mutant)


# One in ten runs with every change; all of them before a release.
@pytest.mark.parametrize("mutant", MUTANTS[::10], ids=lambda mutant: mutant.name)
def test_some_mutants_are_noticed(mutant):
    assert mutants.failures(mutant)


def test_mutants_can_be_made():
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len(MUTANTS) >= 50
    for mutant in MUTANTS:
        mutant.source()
