"""Settings are frozen dataclasses; here they are made from dictionaries, TOML files and `a.b=c` words."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from raindrop.errors import ConfigError, suggest

T = TypeVar("T")


def make(kind: type[T], *layers: Mapping[str, Any], where: str = "") -> T:
    """Build the frozen dataclass `kind` from dictionaries; later ones win.

    A field that is itself a dataclass is a group of settings, given as 'group.name' or as a dictionary.
    An unknown key or a value of the wrong type is a ConfigError that names the key.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    groups: dict[str, list[Mapping[str, Any]]] = {name: [] for name in known if is_dataclass(hints[name])}
    values: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            group, dot, name = str(key).partition(".")
            if group in groups:
                groups[group].append({name: value} if dot else _table(value, where + group))
            elif key not in known:
                raise ConfigError(f"Unknown setting '{where}{key}': {suggest(str(key), known)}")
            else:
                values[key] = value
    for group, held in groups.items():
        values[group] = make(hints[group], *held, where=f"{where}{group}.")
    try:
        return msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        key = place.strip("`").removeprefix("$.")
        if not key:  # found by the settings themselves, not by their types
            if reason.partition(" ")[0] in known:
                raise ConfigError(f"{where}{reason}") from None
            raise ConfigError(f"{where.rstrip('.') or kind.__name__}: {reason}") from None
        words = [str(word) for word in _words(hints.get(key))]
        if words and str(values[key]) not in words:
            raise ConfigError(
                f"Setting '{where}{key}': '{values[key]}' is not known; {suggest(str(values[key]), words)}"
            ) from None
        raise ConfigError(f"Setting '{where}{key}': {reason[0].lower()}{reason[1:]}.") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where or kind.__name__}: {error}") from None


def _words(hint: Any) -> list[Any]:
    """The words of a Literal type, also within `| None`."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [word for part in get_args(hint) for word in _words(part)]


def _table(value: Any, group: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"'{group}' is a group of settings; give a table of them, or '{group}.NAME'.")
    return value


def to_dict(config: Any) -> dict[str, Any]:
    """The settings as plain JSON values, those of a group as 'group.name'; `make` gives the same object back."""
    values: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(asdict(config)).items():
        held = getattr(config, name)
        values |= {f"{name}.{key}": of for key, of in to_dict(held).items()} if is_dataclass(held) else {name: value}
    return values


def nest(flat: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """{'train.epochs': 5, 'model': {'prune': 0.3}} -> {'train': {'epochs': 5}, 'model': {'prune': 0.3}}."""
    nested: dict[str, dict[str, Any]] = {"model": {}, "train": {}}
    for key, value in flat.items():
        section, dot, name = key.partition(".")
        if section not in nested:
            raise ConfigError(f"Unknown setting '{key}': settings start with 'model.' or 'train.'.")
        nested[section].update({name: value} if dot else _table(value, key))
    return nested


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Settings from a TOML file with the groups [model] and [train]."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such settings file.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a valid TOML file ({error}).") from None


def parse_words(words: Iterable[str]) -> dict[str, Any]:
    """['train.epochs=5', 'model.readout=mean'] -> {'train.epochs': 5, 'model.readout': 'mean'}."""
    values: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"'{word}' is not of the form NAME=VALUE, for example train.epochs=5.")
        named = {"true": True, "false": False, "none": None}
        try:
            value = named[text.lower()] if text.lower() in named else ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = text
        values[key.strip()] = value
    return values


def describe(kind: type) -> dict[str, str]:
    """The text below each field of a config dataclass, by field name; also of those it inherits."""
    help_of: dict[str, str] = {}
    for base in kind.__bases__:
        if is_dataclass(base):
            help_of |= describe(base)
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            help_of[statement.target.id] = inspect.cleandoc(str(below.value.value))
    return help_of
