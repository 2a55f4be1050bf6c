"""The streaming example, as a user starts it."""

import stream_events


def test_the_stream_is_exactly_once(flink_jars, capsys):
    assert stream_events.main(["--rows=2000"]) == 0
    assert "stream ok: 2000 rows, 0 missing, 0 duplicates" in capsys.readouterr().out
