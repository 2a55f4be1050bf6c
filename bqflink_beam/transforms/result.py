"""What a write returns."""

from typing import NamedTuple

import apache_beam as beam

from bqflink_beam.errors import ConfigError


class _Outputs(NamedTuple):
    """A NamedTuple, since Beam finds no outputs in any other kind of object."""

    failed: beam.PCollection
    committed: beam.PCollection | None
    lost: beam.PCollection | None
    dead_letters: bool


class WriteToBigQueryStorageResult(_Outputs):
    """The outputs of a write. All are in global windows."""

    __slots__ = ()

    @property
    def failed_rows(self) -> beam.PCollection:
        """`FailedRow`s: those that were not written, with the reason.

        Raises:
            ConfigError: the write stops at the first bad row, so there are none.
        """
        if not self.dead_letters:
            raise ConfigError(
                "failed_rows needs on_failed_row='output'; with 'raise' the first bad row fails the job"
            )
        return self.failed

    @property
    def commits(self) -> beam.PCollection:
        """One `CommitReport`, when a bounded exactly-once write has committed.

        Raises:
            ConfigError: this write has no commit at its end.
        """
        if self.committed is None:
            raise ConfigError("only ExactlyOnce with bounded input commits at the end of the run")
        return self.committed

    @property
    def lost_streams(self) -> beam.PCollection:
        """`LostStream`s of an unbounded exactly-once write with on_lost_stream='report'.

        Raises:
            ConfigError: this write has no streams to lose.
        """
        if self.lost is None:
            raise ConfigError("only ExactlyOnce with unbounded input has streams that can be lost")
        return self.lost
