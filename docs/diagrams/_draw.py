"""Diagrams of the architecture page, as SVG files beside this script: `python docs/diagrams/_draw.py`.

The pictures have their own light background, so that they can be read on a dark page as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent
INK, MUTED, LINE, PAPER = "#1f2937", "#4b5563", "#6b7280", "#ffffff"
BLUE, GREEN, AMBER, GREY = "#dbeafe", "#dcfce7", "#fef3c7", "#f3f4f6"


@dataclass
class Drawing:
    """An SVG picture of boxes and arrows; coordinates in pixels."""

    title: str
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, x: int, y: int, width: int, height: int, head: str, *lines: str, fill: str = GREY) -> None:
        """Draws a box with a bold first line and further lines below it."""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{fill}" stroke="{LINE}"/>'
        )
        self.text(x + 12, y + 22, head, bold=True)
        for number, line in enumerate(lines):
            self.text(x + 12, y + 42 + 18 * number, line, colour=MUTED, size=12.5)

    def text(self, x: int, y: int, words: str, bold: bool = False, colour: str = INK, size: float = 14) -> None:
        """Writes a line of text."""
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}" font-size="{size}" fill="{colour}"{weight}>{escape(words)}</text>')

    def arrow(self, *points: tuple[int, int], label: str = "", at: tuple[int, int] | None = None) -> None:
        """Draws a line through the points with an arrow head at its end."""
        path = " ".join(f"{x},{y}" for x, y in points)
        self.parts.append(
            f'<polyline points="{path}" fill="none" stroke="{INK}" stroke-width="1.6" marker-end="url(#head)"/>'
        )
        if label and at:
            self.text(*at, label, colour=MUTED, size=12.5)

    def save(self, name: str) -> None:
        """Writes the file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" font-family="system-ui, sans-serif" role="img" aria-label="{escape(self.title)}">\n'
            f"<title>{escape(self.title)}</title>\n"
            '<defs><marker id="head" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">'
            f'<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{PAPER}"/>\n'
        )
        (FOLDER / f"{name}.svg").write_text(head + "\n".join(self.parts) + "\n</svg>\n")


def floors() -> None:
    drawing = Drawing("The packages as floors; imports point down", 760, 430)
    rows = (
        ("leaderboards/", ("data only: recipes, records, rendered pages",), GREY),
        ("baselines/", ("trainers: algorithms, collection of episodes, distributed training, studies",), AMBER),
        ("harness/", ("rollout, prompting, policies, evaluation, statistics, suites, reports, commands",), GREEN),
        ("envsuite/envs/", ("one folder per family; no family imports another",), BLUE),
        ("envsuite/", ("types, errors, registry, base class, panels, sandbox; no notion of a model",), BLUE),
    )
    for number, (head, lines, fill) in enumerate(rows):
        y = 20 + 82 * number
        drawing.box(20, y, 600, 58, head, *lines, fill=fill)
        if number:
            label = ("", "is read by", "imports", "builds by name", "imports")[number]
            drawing.arrow((320, y - 24), (320, y - 3), label=label, at=(332, y - 8))
    drawing.arrow((620, 131), (680, 131), (680, 385), (624, 385), label="imports", at=(688, 300))
    drawing.arrow((620, 213), (655, 213), (655, 370), (624, 370))
    drawing.save("floors")


def episode() -> None:
    drawing = Drawing("The life of an episode, from the command line to the record", 900, 640)
    drawing.box(
        20, 20, 400, 76, "1  command line", "harness/cli: flags become a RunConfig,", "an Execution and a policy"
    )
    drawing.box(
        480, 20, 400, 76, "2  evaluate", "lists episodes (task, knobs, seed, attempt),", "skips those in journal.jsonl"
    )
    drawing.arrow((420, 58), (476, 58))
    drawing.box(20, 150, 860, 330, "3  rollout: one loop, many episodes at once", fill="#f9fafb")
    drawing.box(
        45,
        190,
        370,
        94,
        "executor",
        "an environment per slot, in this process,",
        "in worker processes, or on Ray:",
        "reset(seed), step(command)",
        fill=BLUE,
    )
    drawing.box(
        485,
        190,
        370,
        94,
        "prompting",
        "rules, objective, remembered turns and",
        "the present observation become",
        "messages",
        fill=GREEN,
    )
    drawing.box(
        485,
        355,
        370,
        94,
        "policy",
        "writes a reply, or scores the admissible",
        "commands; each draw has a seed of",
        "(task, seed, attempt, turn)",
        fill=GREEN,
    )
    drawing.box(
        45,
        355,
        370,
        94,
        "parser",
        "finds the command in the reply; a reply",
        "without one costs a turn and is",
        "answered in words",
        fill=GREEN,
    )
    drawing.arrow((415, 236), (481, 236))
    drawing.arrow((670, 284), (670, 351), label="prompt", at=(680, 322))
    drawing.arrow((485, 402), (419, 402))
    drawing.arrow((230, 355), (230, 288), label="commands", at=(240, 326))
    drawing.arrow((680, 96), (680, 146))
    drawing.box(20, 535, 260, 76, "4  record", "every command, observation,", "reward and fault of the episode")
    drawing.box(320, 535, 260, 76, "5  journal.jsonl", "appended and flushed as each", "episode ends")
    drawing.box(620, 535, 260, 76, "6  results.jsonl, summary.json", "sorted by key, written at the", "end in one step")
    drawing.arrow((150, 480), (150, 531), label="an episode ends; its slot starts the next one", at=(160, 512))
    drawing.arrow((280, 573), (316, 573))
    drawing.arrow((580, 573), (616, 573))
    drawing.save("episode")


def training() -> None:
    drawing = Drawing("The life of a training step", 900, 520)
    drawing.box(
        20,
        20,
        260,
        94,
        "1  sampler",
        "draws (task, seed) from the",
        "training seeds; a group is several",
        "attempts at one game",
        fill=AMBER,
    )
    drawing.box(
        320,
        20,
        260,
        94,
        "2  actor",
        "the model as a policy: in this",
        "process, or on servers that have",
        "loaded the present weights",
        fill=AMBER,
    )
    drawing.box(
        620,
        20,
        260,
        94,
        "3  rollout",
        "the loop of the evaluation;",
        "keeps token ids and log-probs",
        "of what was sampled",
        fill=GREEN,
    )
    drawing.box(
        620,
        190,
        260,
        94,
        "4  batch",
        "rows of tokens [batch, time] with",
        "a mask of sampled tokens; broken",
        "episodes are left out",
        fill=AMBER,
    )
    drawing.box(
        320,
        190,
        260,
        94,
        "5  advantages",
        "the algorithm assigns rewards to",
        "tokens: GAE with a critic, or",
        "comparison within a group",
        fill=AMBER,
    )
    drawing.box(
        20,
        190,
        260,
        94,
        "6  policy step",
        "epochs over minibatches: clipped",
        "surrogate, value loss, KL, entropy;",
        "a non-finite loss stops the run",
        fill=AMBER,
    )
    drawing.box(
        20,
        380,
        260,
        94,
        "7  run log",
        "one line per update in",
        "metrics.jsonl, with warnings of",
        "collapse",
        fill=GREY,
    )
    drawing.box(
        320,
        380,
        260,
        94,
        "8  measurement",
        "every eval_every updates, on seeds",
        "that are never trained on; best/",
        "keeps the best model",
        fill=GREY,
    )
    drawing.box(
        620,
        380,
        260,
        94,
        "9  checkpoint",
        "weights, moments, generators and",
        "counters, replaced in one step;",
        "--resume continues from it",
        fill=GREY,
    )
    drawing.arrow((280, 67), (316, 67))
    drawing.arrow((580, 67), (616, 67))
    drawing.arrow((750, 114), (750, 186))
    drawing.arrow((620, 237), (584, 237))
    drawing.arrow((320, 237), (284, 237))
    drawing.arrow((210, 190), (210, 150), (450, 150), (450, 118), label="new weights", at=(290, 143))
    drawing.arrow((150, 284), (150, 376))
    drawing.arrow((280, 427), (316, 427))
    drawing.arrow((580, 427), (616, 427))
    drawing.arrow((80, 190), (80, 118), label="next update", at=(88, 172))
    drawing.save("training")


if __name__ == "__main__":
    floors()
    episode()
    training()
