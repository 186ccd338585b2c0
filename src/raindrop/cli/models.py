"""The commands `raindrop models` and `raindrop settings`: the available models, presets and settings."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from rich.markup import escape
from rich.table import Table

from raindrop.cli.samples import console

Flag = Annotated[bool, Parameter(negative=())]


def models(*, markdown: Flag = False) -> None:
    """List the models and presets, what they are and when to use them.

    Args:
        markdown: print docs/models.md instead, which also has every setting.
    """
    from raindrop.estimators import catalogue
    from raindrop.models.descriptions import PRESET_DESCRIPTIONS

    if markdown:
        console.print(catalogue.markdown(), end="", markup=False)
        return
    for purpose, title in catalogue.PURPOSES.items():
        rows = Table("model", "what it is", "when to use it", "presets", title=title, title_justify="left")
        for each in catalogue.catalogue():
            if each.purpose == purpose:
                about = each.description
                rows.add_row(each.name, about.summary, about.when, ", ".join(each.presets))
        console.print(rows)
    presets = Table("preset", "when to use it")
    for name, text in PRESET_DESCRIPTIONS.items():
        presets.add_row(name, text)
    console.print(presets)
    console.print("the settings of one: raindrop settings MODEL --preset PRESET")


def settings(model: str, *, preset: str = "tuned", readings: Flag = False) -> None:
    """List every setting of a model: its value in the preset, allowed values, default if different, what it does.

    Args:
        model: name of the model; `raindrop models` lists them.
        preset: preset whose values to show: tuned, paper or, for raindrop, graph.
        readings: show the model that fills gaps and forecasts, if another of the same name predicts classes.
    """
    from raindrop.estimators.catalogue import PURPOSES, find_model, format_value

    found = find_model(model, "readings" if readings else None)
    listed = found.settings(preset)
    console.print(f"[bold]{found.name}[/]: {escape(found.description.summary)}")
    console.print(f"for: {PURPOSES[found.purpose]}; presets: {', '.join(found.presets)}")
    for each in listed:
        default = "" if each.value == each.default else f"; default {format_value(each.default)}"
        console.print(f"[bold]{each.name}[/] = {escape(f'{format_value(each.value)}  ({each.allowed}{default})')}")
        console.print(f"    {escape(' '.join(each.help.split()))}")
    command = "train" if found.purpose == "samples" else "impute train"
    console.print(f"change one: raindrop {command} DATA --out RUN --model {model} --set {listed[0].name}=VALUE")
