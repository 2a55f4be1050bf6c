"""docs/types.md says what the code does."""

import pathlib
import subprocess
import sys

from bqflink_beam.transforms.types_page import page

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "types.md"


def test_the_page_is_what_the_code_says():
    assert DOCUMENT.read_text() == page(), "run: python -m bqflink_beam types > docs/types.md"


def test_the_command_prints_it():
    asked = [sys.executable, "-W", "ignore", "-m", "bqflink_beam", "types"]

    answer = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True)

    assert answer.stdout == page()
