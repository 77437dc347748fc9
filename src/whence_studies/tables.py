"""Validation of tables that users write, such as protocols, by pydantic, with errors of whence."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from whence.core.registry import Registry
from whence.errors import InvalidInputError

Kind = TypeVar("Kind", bound="Table")
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]


class Table(BaseModel):
    """A table of named values with strict types: a text is not a number."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, populate_by_name=True)


def ours(argument: str, registry: Registry[Any] | None = None) -> AfterValidator:
    """Accept a registered name, or ``module:name`` of a user's own object."""

    def check(value: str) -> str:
        names = [] if registry is None else registry.names()
        if registry is not None and value in registry:
            return registry.name_of(registry.get(value))
        if all(value.partition(":")):
            return value
        known = f"one of {', '.join(names)}, or " if names else ""
        raise InvalidInputError(f"'{argument}' must be {known}module:name of your own. Got {value!r}.")

    return AfterValidator(check)


def validated(kind: type[Kind], values: Any, where: str = "") -> Kind:
    """Read a table, or raise InvalidInputError with the key, the rule, the value and the known keys.

    Parameters
    ----------
    kind
        Class of the table.
    values
        What the user wrote.
    where
        Name of the table, the prefix of keys in errors.

    Examples
    --------
    >>> class Sizes(Table):
    ...     train: Count = 1
    >>> validated(Sizes, {"train": 0}, "data")
    Traceback (most recent call last):
    whence.errors.InvalidInputError: 'data.train' must be at least 1. Got 0.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, InvalidInputError):  # from one of our own checks
        raise cause
    *outer, last = first["loc"] or ("",)
    place = ".".join([*([where] if where else []), *(str(part) for part in first["loc"])])
    if first["type"] == "extra_forbidden":
        table = place.rpartition(".")[0] or "the table"
        raise InvalidInputError(
            f"The keys of {table} must be among {', '.join(_keys(kind, outer))}. Got {last!r}."
        )
    if first["type"] == "missing":
        raise InvalidInputError(f"'{place}' is required. Add it to the table.")
    rule = first["msg"].removeprefix("Input should be ").replace("greater than or equal to", "at least")
    rule = rule.replace("less than or equal to", "at most").removeprefix("Value error, ")
    rule = rule.replace("List should have", "a list of").partition(" after validation")[0]
    raise InvalidInputError(f"'{place or 'the table'}' must be {rule}. Got {first['input']!r}.")


def _keys(kind: Any, path: Sequence[int | str]) -> list[str]:
    """Return the field names of the table at a path."""
    for part in path:
        kind = get_args(kind)[-1] if isinstance(part, int) else kind.model_fields[part].annotation
        if get_origin(kind) in (Union, UnionType):
            kind = next(one for one in get_args(kind) if one is not NoneType)
    return [field.alias or name for name, field in kind.model_fields.items()]
