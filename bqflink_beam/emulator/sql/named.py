"""Functions that the parser leaves as a name and arguments, each with its reader."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql.casts import coerce
from bqflink_beam.emulator.sql.expressions import Env, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import Kind
from bqflink_beam.emulator.sql.scope import Scalar

NamedReader = Callable[[Env, list[Scalar]], Scalar]
_NAMED: dict[str, NamedReader] = {}


def register_named(readers: Mapping[str, NamedReader]) -> None:
    """Adds readers of functions by their names; each function has one."""
    assert not set(readers) & set(_NAMED), set(readers) & set(_NAMED)
    _NAMED.update(readers)


def is_named(name: str) -> bool:
    """Whether there is a reader of that name."""
    return name.upper() in _NAMED


def arity(arguments: list[Scalar], counts: int | range, name: str) -> list[Scalar]:
    """Returns the arguments if there are as many as there should be.

    Raises:
        InvalidQuery: there are not.
    """
    allowed = range(counts, counts + 1) if isinstance(counts, int) else counts
    if len(arguments) not in allowed:
        raise InvalidQuery(
            f"No matching signature for function {name} with {len(arguments)} "
            f"argument{'' if len(arguments) == 1 else 's'}"
        )
    return arguments


def typed(
    env: Env, arguments: list[Scalar], kinds: tuple[Kind, ...], name: str, *, needed: int = -1
) -> list[Scalar]:
    """Returns arguments of these types; the first `needed` must be there, all if it is -1."""
    least = len(kinds) if needed < 0 else needed
    arity(arguments, range(least, len(kinds) + 1), name)
    return [
        coerce(env.plan, value, kind, name) for value, kind in zip(arguments, kinds, strict=False)
    ]


def _anonymous(env: Env, node: Any) -> Scalar:
    only(node, "this", "expressions")
    name = node.name.upper()
    reader = _NAMED.get(name)
    if reader is None:
        raise unsupported(f"Function {name}")
    return reader(env, env.exprs(node.expressions))


register({exp.Anonymous: _anonymous})
