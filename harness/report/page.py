"""Renders a report as one HTML page: tables, comparisons, curves, grids and the trajectory viewer."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from envsuite.errors import UsageError
from envsuite.escaping import embedded, setting
from harness.report.charts import learning_curves
from harness.report.pack import Packed, pack
from harness.report.read import Curve, ReportData
from harness.stats.compare import Run, compare, scored
from harness.stats.summary import number, percent, summarise

MOST_PAIRED = 5
"""largest number of runs in a table for which every pair is compared"""


def render(
    material: ReportData,
    title: str = "envsuite report",
    replays: int = 20,
    picture_mb: float = 15,
    max_mb: float = 60,
    trusted: Mapping[str, Any] = {},
    show: Callable[[int], None] = lambda done: None,
) -> str:
    """Returns the whole report as HTML; equal data gives equal bytes.

    `show` receives the number of packed episodes after each one.

    `replays` episodes of each run are replayed for prompts, pictures and the expert's move. The runs may come from
    anybody: knobs that name files or choose the sandbox are taken from `trusted`, the user's own settings.
    Raises UsageError if there is nothing to show or the page would be larger than `max_mb`.
    """
    import jinja2  # an extra

    if not (material.runs or material.curves or material.grids):
        raise UsageError("No finished run was found: name run folders, or training folders.")
    packed = pack(material.runs, replays, int(picture_mb * 2**20), int(max_mb * 2**20), trusted, show)
    style, script = asset("style.css"), asset("episode.js") + asset("viewer.js")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(percent=percent, number=number, share=_share)
    names = list(dict.fromkeys(run.name for run in material.runs))
    hues = {name: _hue(name, number) for number, name in enumerate(name for name in names if name not in _FIXED)}
    hues |= {name: _hue(name, 0) for name in names if name in _FIXED}
    page = environment.from_string(asset("page.html")).render(
        title=title,
        policy=content_policy(style, script),
        style=style,
        script=script,
        hues=hues,
        groups=[_group(runs) for runs in material.groups()],
        curves=[(curve.name, f"k{number % 6}", _last(curve)) for number, curve in enumerate(material.curves)],
        curve_svg=learning_curves(material.curves),
        grids=material.grids,
        packed=packed,
        about=embedded({"runs": [_about(run, hues) for run in material.runs]}),
        notes=_notes(packed),
    )
    return page.encode("utf-8", "backslashreplace").decode()  # a model named after a path that is not UTF-8


def asset(name: str) -> str:
    """Returns a text file of this package."""
    return (resources.files("harness.report") / name).read_text()


def content_policy(style: str, script: str) -> str:
    """Returns the content security policy: only this page's script and style, by hash, and embedded pictures."""

    def digest(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {digest(script)}; style-src {digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


_FIXED = {"random": "floor", "expert": "ceiling"}


def _hue(name: str, number: int) -> str:
    return _FIXED.get(name, f"k{number % 6}")


def _about(run: Run, hues: dict[str, str]) -> dict[str, Any]:
    fields = ("task", "knobs", "reward_mode", "max_turns", "sampling", "prompting", "envsuite", "run_id", "panel")
    return {
        "name": run.name,
        "hue": hues[run.name],
        "config": {field: run.config[field] for field in fields if run.config.get(field)},
    }


def _group(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns one table for one task, setting and protocol: a row per run, types, paired comparisons."""
    summaries = [summarise(run.records) for run in runs]
    kinds = sorted({kind for summary in summaries for kind in summary["by_task_type"]})
    config = runs[0].config
    names = [run.name for run in runs]
    labels = [f"{run.name} ({run.config['run_id'][:6]})" if names.count(run.name) > 1 else "" for run in runs]
    return {
        "task": config["task"],
        "knobs": ", ".join(setting(name, value) for name, value in config["knobs"].items()),
        "protocol": _protocol(runs),
        "rows": [
            {"name": run.name, "label": label, **summary}
            for run, label, summary in zip(runs, labels, summaries, strict=True)
        ],
        "types": [
            (
                kind,
                [(run.name, summary["by_task_type"].get(kind)) for run, summary in zip(runs, summaries, strict=True)],
            )
            for kind in kinds
        ],
        "pairs": _pairs(runs),
    }


def _protocol(runs: Sequence[Run]) -> str:
    """Describes the settings besides the model that affect the results, in one line."""
    config = next((run.config for run in runs if run.config.get("prompting")), runs[0].config)
    counts = sorted({run.config["seeds"][1] for run in runs})
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    settings = [f"{many} seeds from {config['seeds'][0]}", f"reward {config['reward_mode']}"]
    if config["attempts"] > 1:
        settings.insert(1, f"{config['attempts']} attempts each")
    caps = {run.config.get("max_turns") for run in runs}
    if caps != {None}:
        settings.append(
            " or ".join(f"at most {cap} turns" if cap else "no cap on turns" for cap in sorted(caps, key=_cap))
        )
    if config.get("panel"):
        settings.append(f"panel {config['panel'][0]} {config['panel'][1]}")
    if prompting := config.get("prompting"):
        history = "all" if prompting["history"] < 0 else prompting["history"]
        settings.append(f"history {history}, thinking {'on' if prompting['thinking'] else 'off'}")
        settings.append(f"admissible commands {prompting['admissible']}, grammar {prompting['grammar']}")
    if sampling := config.get("sampling"):
        temperature = sampling["temperature"]
        settings.append("the server's temperature" if temperature is None else f"temperature {temperature:g}")
    return " · ".join(settings)


def _cap(cap: int | None) -> float:
    return math.inf if cap is None else cap


def _pairs(runs: Sequence[Run]) -> list[Any]:
    if not 2 <= len(runs) <= MOST_PAIRED:
        return []
    try:
        return compare([scored(run) for run in runs])
    except UsageError:  # no common game, because other seeds were allowed
        return []


def _last(curve: Curve) -> str:
    """Describes the last measurement of a curve."""
    if curve.evals:
        line = curve.evals[-1]
        interval = {"value": line["success"], "low": line["low"], "high": line["high"], "n": line["n"]}
        trained_on = "" if line.get("held_out", True) else ", on games it trained on"
        return f"{percent(interval)} after update {line['update']}{trained_on}"
    if curve.points:
        line = curve.points[-1]
        return f"{100 * line['success']:.1f} on the episodes of update {line['update']}, nothing held out"
    return "nothing measured"


def _notes(packed: Packed) -> list[str]:
    notes = []
    if packed.replayed:
        notes.append(
            f"{packed.replayed:,} of {packed.episodes:,} episodes were replayed for this page: they show the model's "
            "prompts, the expert's moves, and pictures if the environment draws them."
        )
    if packed.stale:
        notes.append(f"{packed.stale} of these did not come out as recorded: envsuite replay names the differences.")
    notes += [f"{run}: not replayed, {why}." for run, why in packed.not_replayed.items()]
    return notes


def _share(value: float | None, digits: int = 1) -> str:
    """Returns 0.125 as '12.5', and a dash for a missing number."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"
