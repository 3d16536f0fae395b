"""JSON Schemas of dataclasses, and the check of values.

A value that does not fit is reported by the name of its field, with dots for nesting, and never by the value: it may be
a secret.
"""
import dataclasses
import functools
import json
import math
import types
import typing
from typing import Any, Dict, List, Mapping, Tuple

Problems = List[Tuple[str, str]]  # a field, and what is wrong with it
Schema = Dict[str, Any]

TYPES: Dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
LIMITS = {"string": ("minLength", "maxLength"), "array": ("minItems", "maxItems")}  # else minimum and maximum
NOTES = {"doc": "description", "format": "format", "secret": "writeOnly", "tune": "x-ledgerd-tune"}
METADATA, INPUTS = (*NOTES, "min", "max", "input"), ("file", "url", "line", "modified", "owner")


def bare(hint: Any) -> Any:
    """The T of T | None: None stands for an absent field."""
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint
    rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
    return rest[0] if len(rest) == 1 else hint


@functools.lru_cache(maxsize=None)
def fields_of(kind: Any, given: bool = True) -> List[Tuple[Any, Any]]:
    """The fields of a dataclass, each with its type. given: only those that its constructor takes."""
    hints = typing.get_type_hints(kind)
    return [(f, bare(hints[f.name])) for f in dataclasses.fields(kind) if f.init or not given]


def schema(hint: Any, notes: Mapping[str, Any] = types.MappingProxyType({}), given: bool = True) -> Schema:
    """The schema of a type. notes is the metadata of its field. given: the value comes from ledgerd; else an output."""
    hint, none = bare(hint), dataclasses.MISSING
    kind, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    made: Schema = {}
    if dataclasses.is_dataclass(hint):
        made = {"type": "object", "additionalProperties": False, "properties": {}, "required": []}
        for f, of in fields_of(hint, given):
            if given and (odd := [name for name in f.metadata if name not in METADATA]):
                raise TypeError(f"field {f.name}: metadata has {odd[0]!r}, and takes {', '.join(METADATA)}")
            if given and f.metadata.get("input", "line") not in INPUTS:
                raise TypeError(f"field {f.name}: input is {', '.join(INPUTS)}, not {f.metadata['input']!r}")
            field = made["properties"][f.name] = schema(of, f.metadata, given)
            default = f.default if f.default_factory is none else f.default_factory()
            if default is none:
                made["required"].append(f.name)
            elif default is not None and not secrets_of({"properties": {f.name: field}}):
                field["default"] = json.loads(dumps(default))
    elif kind is typing.Literal:
        made = {"type": TYPES[type(args[0])], "enum": list(args)}
    elif kind in TYPES:
        made = {"type": TYPES[kind]}
        if any(map(hides, args)):
            raise TypeError("a secret is no part of a list or dict: its name would be that of several values")
        if kind is list and args:
            made["items"] = schema(args[0], given=given)
    elif hint is not Any:
        raise TypeError(f"no schema for {hint}: use str, int, float, bool, list, dict, Any, Literal or a dataclass")
    made.update({NOTES[name]: value for name, value in notes.items() if name in NOTES})
    for name, keyword in zip(("min", "max"), LIMITS.get(made.get("type", ""), ("minimum", "maximum"))):
        if name in notes:
            made[keyword] = notes[name]
    return made


def hides(hint: Any, within: Tuple[Any, ...] = ()) -> bool:
    """Whether a type has secrets, at any depth. within: the dataclasses around it, to end at cycles."""
    if dataclasses.is_dataclass(hint) and hint not in within:
        if any(f.init and f.metadata.get("secret") for f in dataclasses.fields(hint)):
            return True
        try:
            return any(hides(of, (*within, hint)) for _, of in fields_of(hint))
        except Exception:  # an annotation cannot be resolved: in a dict it is not needed
            return False
    return any(hides(arg, within) for arg in typing.get_args(hint))


def secrets_of(made: Schema, path: str = "") -> List[str]:
    """The names of the fields that are secrets."""
    found: List[str] = []
    for name, field in made.get("properties", {}).items():
        found += [path + name] if field.get("writeOnly") else secrets_of(field, f"{path}{name}.")
    return found


def load(hint: Any, made: Schema, text: bytes, secrets: Mapping[str, str] = {}) -> Tuple[Any, Problems]:
    """Decodes and checks a value of a type with its schema. An empty text is the empty object."""
    problems: Problems = []
    try:
        value = json.loads(text or b"{}")
    except (ValueError, RecursionError) as err:
        return None, [("", f"not JSON: {err}")]
    for name, secret in secrets.items():
        *path, last = name.split(".")
        at = value
        for part in path:
            at = at.setdefault(part, {}) if isinstance(at, dict) else at
        if isinstance(at, dict):
            at[last] = secret
    try:
        check(made, value, "", problems)
        return (None if problems else build(hint, value)), problems
    except BaseException as err:  # __post_init__ refuses it
        return None, [("", words(err))]


def words(err: BaseException) -> str:
    """The text of an exception; the name of its class if it has no text or the text cannot be made."""
    try:
        return str(err) or type(err).__name__
    except BaseException:
        return type(err).__name__


def check(made: Schema, value: Any, path: str, problems: Problems) -> None:
    kind, below = made.get("type", ""), path + "." if path else ""
    number = type(value) is int or type(value) is float and math.isfinite(value)
    fits = {"number": True, "integer": value == int(value)} if number else {}
    if kind and not fits.get(kind, TYPES.get(type(value)) == kind and kind not in ("number", "integer")):
        problems.append((path, "must be " + kind))
        return
    if "enum" in made and value not in made["enum"]:
        problems.append((path, "must be one of " + ", ".join(map(str, made["enum"]))))
    size = len(value) if kind in LIMITS else value
    low, high = LIMITS.get(kind, ("minimum", "maximum"))
    if low in made and size < made[low] or high in made and size > made[high]:
        problems.append((path, f"{low} is {made.get(low, 'none')}, {high} is {made.get(high, 'none')}"))
    if "properties" in made:
        problems += [(below + name, "is required") for name in made["required"] if name not in value]
        problems += [(below + name, "there is no such field") for name in value if name not in made["properties"]]
        for name in [name for name in made["properties"] if name in value]:
            check(made["properties"][name], value[name], below + name, problems)
    for i, item in enumerate(value if "items" in made else ()):
        check(made["items"], item, f"{below}{i}", problems)


def build(hint: Any, value: Any) -> Any:
    """Converts a checked value to a type."""
    if dataclasses.is_dataclass(hint):
        return hint(**{f.name: build(of, value[f.name]) for f, of in fields_of(hint) if f.name in value})
    if typing.get_origin(hint) is list and typing.get_args(hint):
        return [build(bare(typing.get_args(hint)[0]), item) for item in value]
    return hint(value) if hint in (int, float) else value


def dumps(value: Any) -> bytes:
    """JSON that ledgers keep: valid UTF-8, without NaN."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain).encode()


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # an absent field is left out
        every = [(f, getattr(value, f.name)) for f in dataclasses.fields(value)]
        return {f.name: of for f, of in every if of is not None or f.default is not None}
    raise TypeError(f"a {type(value).__name__} is no JSON" + "; use a list" * isinstance(value, (set, frozenset)))


def culprit(value: Any, path: str = "output", around: Tuple[int, ...] = ()) -> str:
    """The path of the part of a value that is no JSON. around: the values that it is in, to end at cycles."""
    below: Any = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, (list, tuple)) else ())
    for name, part in () if id(value) in around else below:
        try:
            dumps(part)
        except Exception:
            return culprit(part, f"{path}.{name}", (*around, id(value)))
    return path
