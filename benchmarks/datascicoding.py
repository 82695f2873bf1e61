"""The expert's ROC AUC on every data set at hand, beside what was published; and the feature variant's.

    python -m benchmarks.datascicoding [--markdown FILE]

Published: POAD (Wen et al., 2024), Table 4, whose CAAFE columns are as printed there (`harness.suites.published`). The rows it
drew are not known; ours are drawn with seed 0 after dropping incomplete ones, which for pharyngitis gives the very 512
of the paper. The Kaggle sets are at hand after `envsuite-data add NAME FILE`, airlines after a download from OpenML.
"""

import argparse
from pathlib import Path

from envsuite import registry
from envsuite.envs.datascicoding import datasets, pipelines
from envsuite.envs.datascicoding.menu import PAPER
from envsuite.errors import DataError, MissingExtra
from harness.suites import published

COLUMNS = (("CodeLLaMA-7B + LoRA", "POAD-Best"), ("GPT-3.5", "CAAFE"), ("GPT-4", "CAAFE"))


def score(task: str, program: str = "", **knobs: object) -> tuple[float, float, float]:
    """AUC, its deviation, and the threshold of success."""
    env = registry.build(task, "dense", seconds=300, **knobs)
    try:
        env.reset(seed=0)
        *_, info = env.step(program or env.expert())
        assert info["verdict"] == "ok", info
        return info["auc"], info["auc_std"], env.threshold()
    finally:
        env.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    args = parser.parse_args()
    printed = {
        (one["task_variant"].replace("_", "-"), one["model"], one["method"]): f"{one['value']:.4f} ± {one['std_or_ci']}"
        for one in published.records()
        if one["key"] == "poad" and one["metric"] == "ROC AUC"
    }
    lines = [
        "| data set | rows | expert | threshold | POAD-Best, CodeLlama-7B | CAAFE, GPT-3.5 | CAAFE, GPT-4 |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in (*PAPER, "breast-cancer", "wine", "digits", "iris"):
        theirs = " | ".join(printed.get((name, *column), "") for column in COLUMNS)
        rows = str(PAPER.get(name, "all"))
        try:
            auc, std, threshold = score(f"DataSciCoding-{name}-v0")
            lines.append(f"| {name} | {rows} | {auc:.4f} ± {std:.4f} | {threshold:.4f} | {theirs} |")
        except (DataError, MissingExtra):
            lines.append(f"| {name} | {rows} | not at hand | | {theirs} |")
        print(lines[-1], flush=True)
    lines += ["", "Variant `features` (a fixed logistic regression):", ""]
    lines += ["| data set | unchanged | expert's transform | threshold |", "|---|---|---|---|"]
    for name in datasets.EMBEDDED:
        plain, _, threshold = score("DataSciCoding-features-v0", pipelines.UNCHANGED, dataset=(name,))
        expert, _, _ = score("DataSciCoding-features-v0", dataset=(name,))
        lines.append(f"| {name} | {plain:.4f} | {expert:.4f} | {threshold:.4f} |")
        print(lines[-1], flush=True)
    if args.markdown:
        title = (
            "# DataSciCoding: the expert beside published scores\n\nFrom one run of `benchmarks/datascicoding.py`: mean "
            "ROC AUC over 5 random halves ± standard deviation over them. Published: POAD (Wen et al., 2024), Table 4, "
            "from `harness.suites.published`; which rows were drawn there is not known.\n\n"
        )
        args.markdown.write_text(title + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
