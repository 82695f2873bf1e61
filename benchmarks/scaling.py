"""Simulates runs on 1 to 1,000 nodes and finds the bottleneck. An extrapolation, not a measurement.

    python -m benchmarks.scaling [--picture docs/images/scaling.svg] [--markdown benchmarks/scaling.md]

Each node has eight processors and 32 slots, and each slot plays four episodes. The costs come from
`harness/capacity/profiles.json`.
"""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import replace
from pathlib import Path

from harness.capacity.predict import CURES
from harness.capacity.profile import Profile, load
from harness.capacity.simulate import DISK, MESSAGE, Cluster, Simulated, Work, simulate

NODES = (1, 3, 10, 30, 100, 300, 1000)
CPUS, SLOTS = 8, 32
DAY = 86_400
TOKENS, WRITTEN, LATENCY = 100, 2000.0, 1.0
"""Assumed for a small model on one GPU: tokens per reply, tokens per second of a server, seconds to the first token."""


def played(profile: Profile, player: str, nodes: int, servers: int) -> Simulated:
    """Simulates one run on `nodes` nodes; without servers the player follows advice."""
    head, _ = load()
    known = profile.turns[player]
    spread = [known[index * 7919 % len(known)] for index in range(len(known))]
    episodes = 4 * nodes * SLOTS
    work = Work(
        profile.reset_s, profile.turn_s, list(itertools.islice(itertools.cycle(spread), episodes)), profile.record_bytes
    )
    where = Cluster(
        workers=nodes * CPUS,
        slots=nodes * SLOTS,
        replicas=servers,
        prompts_per_s=WRITTEN / TOKENS,
        latency_s=LATENCY if servers else 0.0,
        message_s=MESSAGE,
        head_turn_s=head.turn_s + head.answer_s,
        head_message_s=head.message_s,
        journal_s_per_mb=head.journal_s_per_mb,
        disk_mb_per_s=DISK,
    )
    return simulate(work, where if servers else replace(where, replicas=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--most", type=int, default=1000, help="nodes")
    args = parser.parse_args()
    _, families = load()
    alfworld = families["alfworld"]
    # Name, profile, player, servers for a node.
    cases = [
        ("ALFWorld, expert", alfworld, "expert", lambda nodes: 0),
        ("ALFWorld, a model on one server a node", alfworld, "expert", lambda nodes: nodes),
        ("ALFWorld, a model on 8 servers in all", alfworld, "expert", lambda nodes: 8),
    ]
    if "textworld" in families:
        cases.append(("TextWorld, expert", families["textworld"], "expert", lambda nodes: 0))
    rows = [
        "| run | nodes | episodes a day | policy | environments | head | disk | to go faster |",
        "|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, profile, player, servers in cases:
        for nodes in (count for count in NODES if count <= args.most and (servers(count) != 8 or count <= 100)):
            simulated = played(profile, player, nodes, servers(nodes))
            curves.setdefault(name, []).append((nodes, simulated.rate * DAY))
            shares = " | ".join(
                f"{100 * simulated.busy[part]:.0f} %" for part in ("policy", "environments", "head", "disk")
            )
            rows.append(
                f"| {name} | {nodes:,} | {simulated.rate * DAY:,.0f} | {shares} | {CURES[simulated.bottleneck]} |"
            )
            print(rows[-1], flush=True)
        write(rows, curves, args.markdown, args.picture)  # after each case, as later ones take long


def write(
    rows: list[str], curves: dict[str, list[tuple[int, float]]], markdown: Path | None, image: Path | None
) -> None:
    """Writes the table and its picture."""
    if markdown:
        markdown.write_text(
            f"""# From one node to a thousand, simulated

`python -m benchmarks.scaling`: nodes of {CPUS} processors and {SLOTS} slots. Engines and head cost what was measured
(`harness/capacity/profiles.json`); a server is assumed to write {WRITTEN:,.0f} tokens a second, {TOKENS} a reply,
with {LATENCY:g} s to the first. The simulation was fitted to runs of 1 and 2 workers and checked against runs of
3 and 4 ([capacity.md](capacity.md)): all else is extrapolation. A message to a worker and back takes
{1000 * MESSAGE:.0f} ms (fitted there), and {1000 * load()[0].message_s:.2f} ms of the head's CPU (measured), as if
Ray's threads never ran in parallel with the head's; [executors.md](executors.md) has measurements on one machine.
Shares are the fractions of time in which each part is busy.

"""
            + "\n".join(rows)
            + "\n"
        )
    if image:
        image.write_text(picture(curves))


def picture(curves: dict[str, list[tuple[int, float]]]) -> str:
    """Draws episodes per day over nodes, both axes logarithmic, as an SVG."""
    width, height, left, top = 660, 360, 100, 20
    rates = [rate for curve in curves.values() for _, rate in curve]
    low, high = math.floor(math.log10(min(rates))), math.ceil(math.log10(max(rates)))

    def x(nodes: float) -> float:
        return left + (width - left - 24) * math.log10(nodes) / 3

    def y(rate: float) -> float:
        return height - 50 - (height - 50 - top) * (math.log10(rate) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 20 * len(curves)}" '
        'font-family="sans-serif" font-size="12">'
    ]
    parts.append(f'<rect width="{width}" height="{height + 20 * len(curves)}" fill="#fff"/>')
    for power in range(low, high + 1):
        parts.append(
            f'<line x1="{left}" x2="{width - 24}" y1="{y(10**power):.0f}" y2="{y(10**power):.0f}" stroke="#ddd"/>'
        )
        parts.append(f'<text x="{left - 6}" y="{y(10**power) + 4:.0f}" text-anchor="end">{10**power:,}</text>')
    for nodes in (1, 10, 100, 1000):
        parts.append(f'<text x="{x(nodes):.0f}" y="{height - 32}" text-anchor="middle">{nodes:,}</text>')
    parts.append(
        f'<text x="{width / 2}" y="{height - 14}" text-anchor="middle">nodes; episodes a day, simulated</text>'
    )
    for place, (name, curve) in enumerate(curves.items()):
        colour = ("#0b6fb8", "#c2410c", "#15803d", "#7e22ce")[place % 4]
        points = " ".join(f"{x(nodes):.1f},{y(rate):.1f}" for nodes, rate in curve)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.extend(f'<circle cx="{x(nodes):.1f}" cy="{y(rate):.1f}" r="3" fill="{colour}"/>' for nodes, rate in curve)
        parts.append(f'<text x="{left}" y="{height + 8 + 20 * place}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    main()
