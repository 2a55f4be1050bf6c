"""Rewrites the literals and comments of a query before it is parsed.

The parser's own reading of escapes is not BigQuery's: it confuses ``b'\\xff'`` with
``b'ÿ'`` and lets wrong escapes through. Here every string is decoded by BigQuery's
rules and written again in the one form that both read alike, bytes become a call of
``FROM_HEX``, and comments (which may be a megabyte long) are taken out.
"""

import re

from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|\#[^\n]*|/\*.*?\*/)
      | (?P<prefix>(?<![A-Za-z0-9_@])(?:rb|br|r|b)?)(?P<quote>\"{3}|'{3}|\"|')
      | (?P<name>`(?:\\.|[^`\\])*`)
      | (?P<pipe>\|>)""",
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "?": "?", '"': '"', "'": "'", "`": "`",
}  # fmt: skip
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\?\"'`])|[xX]([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.|$))",
    re.DOTALL,
)


def normalize(text: str) -> str:
    """Returns the query without comments and with its literals in plain form.

    Raises:
        InvalidQuery: a literal or comment is not closed, or has an illegal escape.
    """
    out: list[str] = []
    at = 0
    while match := _TOKEN.search(text, at):
        out.append(text[at : match.start()])
        at = match.end()
        if match["comment"]:
            out.append(" ")
        elif match["name"]:
            out.append(match["name"])
        elif match["pipe"]:
            raise unsupported("Pipe syntax (|>)")
        else:
            literal, at = _literal(text, match)
            out.append(literal)
    out.append(text[at:])
    if "/*" in out[-1]:
        raise InvalidQuery("Syntax error: Unclosed comment")
    return "".join(out)


def _literal(text: str, match: "re.Match[str]") -> tuple[str, int]:
    quote, prefix = match["quote"], match["prefix"].lower()
    end = _end(text, match.end(), quote)
    body = text[match.end() : end]
    if len(quote) == 1 and "\n" in body:
        raise InvalidQuery("Syntax error: Unclosed string literal")
    if "b" in prefix:
        data = body.encode() if "r" in prefix else _bytes(body)
        return f" FROM_HEX('{data.hex()}') ", end + len(quote)
    value = body if "r" in prefix else _text(body)
    return quoted(value), end + len(quote)


def _end(text: str, start: int, quote: str) -> int:
    # Even in a raw literal a backslash keeps the quote behind it from closing it.
    closing = re.compile(rf"\\.|{quote}", re.DOTALL)
    for match in closing.finditer(text, start):
        if match[0] == quote:
            return match.start()
    raise InvalidQuery("Syntax error: Unclosed string literal")


def quoted(value: str) -> str:
    """Returns a text as a literal that parser and BigQuery read alike."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return "'" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"


def _text(body: str) -> str:
    def decode(match: "re.Match[str]") -> str:
        simple, hexa, octal, short, long, illegal = match.groups()
        if illegal is not None:
            raise InvalidQuery(f"Syntax error: Illegal escape sequence: \\{illegal}")
        if simple:
            return _SIMPLE[simple]
        code = int(octal, 8) if octal else int(hexa or short or long, 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise InvalidQuery(f"Syntax error: Illegal escape sequence: {match[0]}")
        return chr(code)

    return _ESCAPE.sub(decode, body) if "\\" in body else body


def _bytes(body: str) -> bytes:
    out: list[bytes] = []
    at = 0
    for match in _ESCAPE.finditer(body):
        simple, hexa, octal, _, _, _ = match.groups()
        out.append(body[at : match.start()].encode())
        at = match.end()
        if simple:
            out.append(_SIMPLE[simple].encode())
        elif hexa or octal:
            code = int(hexa, 16) if hexa else int(octal, 8)
            if code > 255:
                raise InvalidQuery(f"Syntax error: Illegal escape sequence: {match[0]}")
            out.append(bytes([code]))
        else:
            raise InvalidQuery(f"Syntax error: Illegal escape sequence: {match[0]}")
    out.append(body[at:].encode())
    return b"".join(out)
