"""Where the next append goes: every answer an append can get, and what it means.

Pure. A stream is *fresh* when this very bundle made it: nobody else can know its name,
so what lies on it is what this bundle put there. On any other stream a worker that the
runner has given up may still be writing, and a restored position may be behind what was
written since, so an offset that is taken says nothing about *which* rows took it.
"""

import enum

from bqflink_beam.errors import (
    AlreadyWrittenError,
    BqflinkError,
    NotFoundError,
    OffsetGapError,
    StreamFinalizedError,
    StreamGoneError,
)


class Answer(enum.Enum):
    """What came back for an append at an offset."""

    APPENDED = "appended"
    ALREADY_WRITTEN = "the offset is taken, and this was the first send"
    ALREADY_WRITTEN_RESENT = "the offset is taken, and an earlier send had no answer"
    GAP = "the offset is beyond the end"
    GONE = "no such stream, or no such table any more"
    FINALIZED = "the stream takes no more rows"
    OTHER = "any other error"


class Move(enum.Enum):
    """What the writer does next."""

    DONE = "the rows are in"
    NEW_STREAM = "forget this stream, append everything to a new one from row 0"
    STOP = "raise: the bundle fails and the runner repeats it"


_MOVES: dict[tuple[Answer, bool], Move] = {
    # (answer, stream is fresh)
    (Answer.APPENDED, True): Move.DONE,
    (Answer.APPENDED, False): Move.DONE,
    # Nobody else writes to a fresh stream: something is wrong with our counting.
    (Answer.ALREADY_WRITTEN, True): Move.STOP,
    (Answer.ALREADY_WRITTEN, False): Move.NEW_STREAM,
    # The only case in which ALREADY_EXISTS is success: our own bytes, sent twice.
    (Answer.ALREADY_WRITTEN_RESENT, True): Move.DONE,
    (Answer.ALREADY_WRITTEN_RESENT, False): Move.NEW_STREAM,
    # Acknowledged rows are missing. A new stream would hide their loss.
    (Answer.GAP, True): Move.STOP,
    (Answer.GAP, False): Move.STOP,
    (Answer.GONE, True): Move.STOP,
    (Answer.GONE, False): Move.NEW_STREAM,
    (Answer.FINALIZED, True): Move.STOP,
    (Answer.FINALIZED, False): Move.NEW_STREAM,
    (Answer.OTHER, True): Move.STOP,
    (Answer.OTHER, False): Move.STOP,
}


def answer_of(error: BqflinkError | None) -> Answer:
    """Returns the answer that an error stands for; None is an append that worked."""
    if error is None:
        return Answer.APPENDED
    if isinstance(error, AlreadyWrittenError):
        return Answer.ALREADY_WRITTEN_RESENT if error.resent else Answer.ALREADY_WRITTEN
    if isinstance(error, OffsetGapError):
        return Answer.GAP
    if isinstance(error, StreamGoneError | NotFoundError):
        return Answer.GONE
    if isinstance(error, StreamFinalizedError):
        return Answer.FINALIZED
    return Answer.OTHER


def next_move(answer: Answer, *, fresh: bool) -> Move:
    """Returns what the writer does after `answer` on a stream that is `fresh` or not."""
    return _MOVES[answer, fresh]
