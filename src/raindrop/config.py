"""Build config dataclasses from dictionaries, TOML files and `a.b=c` arguments."""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from raindrop.errors import ConfigError, suggest
from raindrop.ranges import Range, ranges_of

T = TypeVar("T")


def make(kind: type[T], *layers: Mapping[str, Any], where: str = "") -> T:
    """Build the frozen dataclass `kind` from dictionaries; later ones win.

    A field that is itself a dataclass is a group of settings, given as 'group.name' or as a dictionary.
    An unknown key or a value of the wrong type raises a ConfigError that names the key. `where` is put before the
    key in messages, for example 'train.'.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    groups: dict[str, list[Mapping[str, Any]]] = {name: [] for name in names if is_dataclass(hints[name])}
    values: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            group, dot, name = str(key).partition(".")
            if group in groups:
                groups[group].append({name: value} if dot else _require_mapping(value, where + group))
            elif key not in names:
                known = suggest(str(key), setting_names(kind), prefix=where)
                raise ConfigError(f"Unknown setting '{where}{key}': {known}")
            else:
                values[key] = value
    for group, group_layers in groups.items():
        values[group] = make(hints[group], *group_layers, where=f"{where}{group}.")
    try:
        return msgspec.convert(values, kind, strict=True)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        key = place.strip("`").removeprefix("$.")
        if not key:  # raised by the dataclass's own check, not by a type
            if reason.partition(" ")[0] in names:
                raise ConfigError(f"{where}{reason}") from None
            raise ConfigError(f"{where.rstrip('.') or kind.__name__}: {reason}") from None
        choices = [str(choice) for choice in _literal_choices(hints.get(key))]
        if choices and str(values[key]) not in choices:
            raise ConfigError(
                f"Setting '{where}{key}': '{values[key]}' is not known; {suggest(str(values[key]), choices)}"
            ) from None
        raise ConfigError(f"Setting '{where}{key}': {reason[0].lower()}{reason[1:]}.") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where or kind.__name__}: {error}") from None


def _literal_choices(hint: Any) -> list[Any]:
    """The values of a Literal type, including one inside `| None`."""
    if get_origin(hint) is Literal:
        return list(get_args(hint))
    return [choice for part in get_args(hint) for choice in _literal_choices(part)]


def _require_mapping(value: Any, group: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"'{group}' is a group of settings; give a table of them, or '{group}.NAME'.")
    return value


def to_dict(config: Any) -> dict[str, Any]:
    """The settings as plain JSON values, grouped ones as 'group.name'; `make` turns them back into an equal config."""
    values: dict[str, Any] = {}
    for name, value in msgspec.to_builtins(asdict(config)).items():
        group = getattr(config, name)
        if is_dataclass(group):
            values |= {f"{name}.{key}": nested for key, nested in to_dict(group).items()}
        else:
            values[name] = value
    return values


def split_sections(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Separate settings into 'model' and 'train', whether they come as 'train.epochs' or as nested dictionaries.

    {'train.epochs': 5, 'model': {'prune': 0.3}} -> {'train': {'epochs': 5}, 'model': {'prune': 0.3}}
    """
    sections: dict[str, dict[str, Any]] = {"model": {}, "train": {}}
    for key, value in settings.items():
        section, dot, name = key.partition(".")
        if section not in sections:
            raise ConfigError(f"Unknown setting '{key}': settings start with 'model.' or 'train.'.")
        sections[section].update({name: value} if dot else _require_mapping(value, key))
    return sections


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings in a TOML file with the sections [model] and [train]."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such settings file.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a valid TOML file ({error}).") from None


def parse_assignments(assignments: Iterable[str]) -> dict[str, Any]:
    """['train.epochs=5', 'model.readout=mean'] -> {'train.epochs': 5, 'model.readout': 'mean'}."""
    values: dict[str, Any] = {}
    constants = {"true": True, "false": False, "none": None}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"'{assignment}' is not of the form NAME=VALUE, for example train.epochs=5.")
        try:
            value = constants[text.lower()] if text.lower() in constants else ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = text
        values[key.strip()] = value
    return values


def describe(kind: type) -> dict[str, str]:
    """The docstring below each field of a config dataclass, inherited fields included, by field name."""
    help_texts: dict[str, str] = {}
    for base in kind.__bases__:
        if is_dataclass(base):
            help_texts |= describe(base)
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, below in zip(tree.body, tree.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            help_texts[statement.target.id] = inspect.cleandoc(str(below.value.value))
    return help_texts


def setting_names(kind: type, prefix: str = "") -> list[str]:
    """Every setting of a config dataclass, those of groups as 'group.name'."""
    hints = get_type_hints(kind)
    names: list[str] = []
    for field in fields(kind):
        hint = hints[field.name]
        inner = setting_names(hint, f"{prefix}{field.name}.") if is_dataclass(hint) else [prefix + field.name]  # type: ignore[arg-type]
        names += inner
    return names


@dataclass(frozen=True)
class Setting:
    """One setting of a config dataclass, for display."""

    name: str
    default: Any
    value: Any
    """Its value in the config that was described."""
    allowed: str
    help: str


def list_settings(config: Any, prefix: str = "") -> list[Setting]:
    """Every setting of `config`, including groups, with its default, value, allowed values and help text."""
    kind = type(config)
    hints, texts, default, ranges = get_type_hints(kind), describe(kind), kind(), ranges_of(kind)  # type: ignore[arg-type]
    settings: list[Setting] = []
    for field in fields(kind):
        value, hint = getattr(config, field.name), hints[field.name]
        if is_dataclass(hint):
            settings += list_settings(value, f"{prefix}{field.name}.")
            continue
        allowed = _allowed(hint, ranges.get(field.name))
        settings.append(Setting(prefix + field.name, getattr(default, field.name), value, allowed, texts[field.name]))
    return settings


def _allowed(hint: Any, within: Range | None) -> str:
    """The allowed values of a setting of this type, in words."""
    kinds = [part for part in get_args(hint) if part is not NoneType] if NoneType in get_args(hint) else [hint]
    choices = _literal_choices(hint)
    if choices:
        words = " | ".join(map(str, choices))
    elif within is not None:
        words = str(within)
    elif bool in kinds:
        words = "true | false"
    elif float in kinds or int in kinds:
        words = "number" if float in kinds else "whole number"
    else:
        words = "text" if str in kinds else "list"
    return f"{words} | none" if NoneType in get_args(hint) else words
