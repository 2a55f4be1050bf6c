"""Where a step on Flink leaves what it saw: LOOPBACK workers are threads of the test's process.

Functions of the test's own module would be pickled by value, with a copy of its globals;
those of an importable module are not.
"""

import collections

import apache_beam as beam

_SEEN: dict[str, list] = collections.defaultdict(list)


class Collect(beam.DoFn):
    """Notes every element under a name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(self, element):
        _SEEN[self.name].append(element)


def collected(name: str) -> list:
    return list(_SEEN[name])
