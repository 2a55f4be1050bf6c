"""Each breakage of the REST side turns a test of `JobConformance` red."""

import pytest

from tests.conformance import rest_mutants
from tests.conformance.rest_mutants import MUTANTS


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_rest_mutant_is_noticed(mutant):
    assert rest_mutants.failures(mutant)


# One in eight runs with every change; all of them before a release.
@pytest.mark.parametrize("mutant", MUTANTS[::8], ids=lambda mutant: mutant.name)
def test_some_rest_mutants_are_noticed(mutant):
    assert rest_mutants.failures(mutant)


def test_rest_mutants_can_be_made():
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        mutant.source()
