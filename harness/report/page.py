"""The report's one page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from envsuite.errors import UsageError
from harness.report.charts import learning_curves
from harness.report.pack import Packed, pack
from harness.report.read import Curve, ReportData
from harness.stats.compare import Run, compare, scored
from harness.stats.summary import number, percent, summarise

MOST_PAIRED = 5
"""runs of one task of which every pair is compared"""


def render(
    material: ReportData,
    title: str = "envsuite report",
    replays: int = 20,
    picture_mb: float = 15,
    max_mb: float = 60,
    trusted: Mapping[str, Any] = {},
) -> str:
    """The whole report as HTML; the same material gives the same bytes.

    `replays` episodes of each run are played again for prompts, pictures and the expert's move. The runs may come from
    anybody: knobs that name files or choose the sandbox are taken from `trusted`, the user's own settings.
    Raises UsageError where there is nothing to show or the page would be larger than `max_mb`.
    """
    import jinja2  # an extra

    if not (material.runs or material.curves or material.grids):
        raise UsageError("No finished run was found: name run folders, or training folders.")
    packed = pack(material.runs, replays, int(picture_mb * 2**20), int(max_mb * 2**20), trusted)
    style, script = _asset("style.css"), _asset("episode.js") + _asset("viewer.js")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters.update(percent=percent, number=number, share=_share)
    names = list(dict.fromkeys(run.name for run in material.runs))
    hues = {name: _hue(name, place) for place, name in enumerate(one for one in names if one not in _FIXED)}
    hues |= {name: _hue(name, 0) for name in names if name in _FIXED}
    page = environment.from_string(_asset("page.html")).render(
        title=title,
        policy=_content_policy(style, script),
        style=style,
        script=script,
        hues=hues,
        groups=[_group(runs) for runs in material.groups().values()],
        curves=[(curve.name, f"k{place % 6}", _last(curve)) for place, curve in enumerate(material.curves)],
        curve_svg=learning_curves(material.curves),
        grids=material.grids,
        packed=packed,
        about=_embed({"runs": [_about(run, hues) for run in material.runs]}),
        notes=_notes(packed),
    )
    return page.encode("utf-8", "backslashreplace").decode()  # a path of other bytes, as a model's name


def _asset(name: str) -> str:
    return (resources.files("harness.report") / name).read_text()


def _content_policy(style: str, script: str) -> str:
    """Nothing runs or is loaded but this page's own script and style, known by their hashes, and pictures within it."""

    def known(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {known(script)}; style-src {known(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embed(found: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(found, separators=(",", ":")).replace("<", "\\u003c")


_FIXED = {"random": "floor", "expert": "ceiling"}


def _hue(name: str, place: int) -> str:
    return _FIXED.get(name, f"k{place % 6}")


def _about(run: Run, hues: dict[str, str]) -> dict[str, Any]:
    shown = ("task", "knobs", "reward_mode", "max_turns", "sampling", "prompting", "envsuite", "run_id", "panel")
    return {
        "name": run.name,
        "hue": hues[run.name],
        "config": {field: run.config[field] for field in shown if run.config.get(field)},
    }


def _group(runs: Sequence[Run]) -> dict[str, Any]:
    """One task at one setting: a row per run, success by type, and every pair of runs compared."""
    summaries = [summarise(run.records) for run in runs]
    kinds = sorted({kind for summary in summaries for kind in summary["by_task_type"]})
    config = runs[0].config
    return {
        "task": config["task"],
        "knobs": ", ".join(f"{name}={value}" for name, value in config["knobs"].items()),
        "protocol": _protocol(runs),
        "rows": [{"name": run.name, **summary} for run, summary in zip(runs, summaries, strict=True)],
        "types": [
            (kind, [(run.name, summary["by_task_type"].get(kind)) for run, summary in zip(runs, summaries)])
            for kind in kinds
        ],
        "pairs": _pairs(runs),
    }


def _protocol(runs: Sequence[Run]) -> str:
    """What decides the numbers besides the model, in one line."""
    config = next((run.config for run in runs if run.config.get("prompting")), runs[0].config)
    counts = sorted({run.config["seeds"][1] for run in runs})
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    said = [f"{many} seeds from {config['seeds'][0]}", f"reward {config['reward_mode']}"]
    if config["attempts"] > 1:
        said.insert(1, f"{config['attempts']} attempts each")
    if config.get("max_turns"):
        said.append(f"at most {config['max_turns']} turns")
    if config.get("panel"):
        said.append(f"panel {config['panel'][0]} {config['panel'][1]}")
    if prompting := config.get("prompting"):
        history = "all" if prompting["history"] < 0 else prompting["history"]
        said.append(f"history {history}, thinking {'on' if prompting['thinking'] else 'off'}")
        said.append(f"admissible commands {prompting['admissible']}, grammar {prompting['grammar']}")
    if sampling := config.get("sampling"):
        said.append(f"temperature {sampling['temperature']:g}")
    return " · ".join(said)


def _pairs(runs: Sequence[Run]) -> list[Any]:
    if not 2 <= len(runs) <= MOST_PAIRED:
        return []
    try:
        return compare([scored(run) for run in runs])
    except UsageError:  # no game in common, where other seeds were allowed
        return []


def _last(curve: Curve) -> str:
    """The last measurement in words."""
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
    said = []
    if packed.replayed:
        said.append(
            f"{packed.replayed:,} of {packed.episodes:,} episodes were played again for this page: they show what the "
            "model was told, what the expert would have said, and pictures where the environment draws them."
        )
    if packed.stale:
        said.append(f"{packed.stale} of these did not come out as recorded: envsuite-replay names the differences.")
    said += [f"{run}: not played again, {why}." for run, why in packed.not_replayed.items()]
    return said


def _share(value: float | None, digits: int = 1) -> str:
    """0.125 as '12.5'; a dash where there is no number."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"
