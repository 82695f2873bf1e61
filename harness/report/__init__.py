"""One self-contained HTML file from finished runs: numbers, charts, and every episode to read.

    read      runs, learning curves and grids from disk
    transcripts  some episodes played again: prompts, pictures, what the expert would have said
    pack      the episodes as an index and compressed chunks
    charts    learning curves as SVG
    page      the template filled in

What a model wrote is untrusted text: the template escapes everything, the script writes text nodes only, and the page's
content policy admits no script or style but its own, and no address at all.
"""

from __future__ import annotations

from harness.report.page import render
from harness.report.read import ReportData, gather, read_board

__all__ = ["ReportData", "gather", "read_board", "render"]
