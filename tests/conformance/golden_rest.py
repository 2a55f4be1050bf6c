"""Golden JSON: what Google's client sends, uploads and reads over REST, and what it means.

Made once by google-cloud-bigquery 3.47, and constants since; see `golden`.
"""

from tests.conformance import golden

_SINCE = golden.civil("2026-03-11T05:45:12.009")
REST_VALUES = tuple(
    {
        **row,
        "home": row["home"] and {**row["home"], "since": row["home"]["since"] and _SINCE},
        "stops": [{**stop, "since": stop["since"] and _SINCE} for stop in row["stops"]],
    }
    for row in golden.VALUES
)
"""`golden.VALUES` with another year: Python's strftime, which the client uses, writes year 1 as 1."""

INSERT_ROWS = {
    "rows": [
        {
            "insertId": "first",
            "json": {
                "s": "é",
                "b": "AP8=",
                "i": "-9223372036854775808",
                "f": 0.1,
                "ok": "true",
                "n": "-1.200000001",
                "w": "1E-38",
                "d": "0001-01-01",
                "t": "13:14:15.016000",
                "l": "9999-12-31T23:59:59.999000",
                "at": "1969-12-31T23:59:59.999999Z",
                "j": '{"a": [1, null]}',
                "g": "POINT(1 2)",
                "v": "-1-2 3 -4:5:6.070000",
                "r": {"start": None, "end": "9999-12-31"},
                "ints": ["1", "0", "-1"],
                "home": {
                    "city": "Bern",
                    "since": "2026-03-11T05:45:12.009000",
                    "tags": ["a", ""],
                },
                "stops": [
                    {
                        "city": "Bern",
                        "since": "2026-03-11T05:45:12.009000",
                        "tags": ["a", ""],
                    },
                    {"tags": []},
                ],
            },
        },
        {
            "insertId": "second",
            "json": {
                "s": "",
                "b": "",
                "i": "0",
                "f": 0.0,
                "ok": "false",
                "d": "1970-01-01",
                "t": "00:00:00",
                "at": "1970-01-01T00:00:00.000000Z",
                "ints": [],
                "home": {"tags": []},
                "stops": [],
            },
        },
        {"insertId": "third", "json": {"i": "1", "ints": [], "stops": []}},
    ]
}
"""The body that `Client.insert_rows` sends of `REST_VALUES`: 64 bits as text, NULL left out."""

NDJSON = (
    '{"s": "é", "b": "AP8=", "i": -9223372036854775808, "f": 0.1, "ok": true, '
    '"n": "-1.200000001", "w": "1E-38", "d": "0001-01-01", "t": "13:14:15.016", '
    '"l": "9999-12-31 23:59:59.999", "at": "1969-12-31 23:59:59.999999+00:00", '
    '"j": {"a": [1, null]}, "g": "POINT(1 2)", "v": "-1-2 3 -4:5:6.07", '
    '"r": {"start": null, "end": "9999-12-31"}, "ints": [1, 0, -1], '
    '"home": {"city": "Bern", "since": "2026-03-11T05:45:12.009", "tags": ["a", ""]}, '
    '"stops": [{"city": "Bern", "since": "2026-03-11T05:45:12.009", "tags": ["a", ""]}, {}]}\n'
    '{"s": "", "b": "", "i": 0, "f": 0, "ok": false, "d": "1970-01-01", "t": "00:00:00", '
    '"at": "1970-01-01T00:00:00Z", "home": {}, "r": null, "ints": []}\n'
    '{"i": 1}'
)
"""The file that `Client.load_table_from_json` uploads of the same rows."""

PAGE = {
    "kind": "bigquery#tableDataList",
    "totalRows": "3",
    "rows": [
        {
            "f": [
                {"v": "é"},
                {"v": "AP8="},
                {"v": "-9223372036854775808"},
                {"v": "0.1"},
                {"v": "true"},
                {"v": "-1.200000001"},
                {"v": "0.00000000000000000000000000000000000001"},
                {"v": "0001-01-01"},
                {"v": "13:14:15.016000"},
                {"v": "9999-12-31T23:59:59.999000"},
                {"v": "-1"},
                {"v": '{"a":[1,null]}'},
                {"v": "POINT(1 2)"},
                {"v": "-1-2 3 -4:5:6.070000"},
                {"v": "[UNBOUNDED, 9999-12-31)"},
                {"v": [{"v": "1"}, {"v": "0"}, {"v": "-1"}]},
                {
                    "v": {
                        "f": [
                            {"v": "Bern"},
                            {"v": "2026-03-11T05:45:12.009000"},
                            {"v": [{"v": "a"}, {"v": ""}]},
                        ]
                    }
                },
                {
                    "v": [
                        {
                            "v": {
                                "f": [
                                    {"v": "Bern"},
                                    {"v": "2026-03-11T05:45:12.009000"},
                                    {"v": [{"v": "a"}, {"v": ""}]},
                                ]
                            }
                        },
                        {"v": {"f": [{"v": None}, {"v": None}, {"v": []}]}},
                    ]
                },
            ]
        },
        {
            "f": [
                {"v": ""},
                {"v": ""},
                {"v": "0"},
                {"v": "0.0"},
                {"v": "false"},
                {"v": None},
                {"v": None},
                {"v": "1970-01-01"},
                {"v": "00:00:00"},
                {"v": None},
                {"v": "0"},
                {"v": None},
                {"v": None},
                {"v": None},
                {"v": None},
                {"v": []},
                {"v": {"f": [{"v": None}, {"v": None}, {"v": []}]}},
                {"v": []},
            ]
        },
        {
            "f": [
                {"v": None},
                {"v": None},
                {"v": "1"},
                *[{"v": None}] * 12,
                {"v": []},
                {"v": None},
                {"v": []},
            ]
        },
    ],
}
"""What ``tabledata.list`` answers of them to a client that asks for timestamps as integers."""
