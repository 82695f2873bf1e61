"""Reports: one self-contained HTML file with the results, charts and episodes of finished runs.

    read         reads runs, learning curves and grids from disk
    transcripts  replays some episodes for prompts, pictures and the expert's moves
    pack         stores the episodes as an index and compressed chunks
    charts       draws learning curves as SVG
    page         renders the template

All text from files is untrusted: the template escapes it, the script writes text nodes only, and the page's
content policy allows only its own script and style, and no network address.
"""

from __future__ import annotations

from harness.report.page import render
from harness.report.read import ReportData, gather, read_board

__all__ = ["ReportData", "gather", "read_board", "render"]
