"""ROC AUC of the expert on every available data set, compared with published scores.

    python -m benchmarks.datascicoding [--markdown FILE]

Published: POAD (Wen et al., 2024), Table 4, whose CAAFE columns are as printed there
(`harness.suites.published_numbers`). Which rows the paper drew is not known; here they are drawn with seed
0 after dropping incomplete rows, which for pharyngitis gives exactly the paper's 512. The Kaggle
sets need `envsuite data add NAME FILE`, airlines a download from OpenML.
"""

import argparse
from pathlib import Path

from envsuite import registry
from envsuite.envs.datascicoding.menu import PAPER
from envsuite.errors import DataError, MissingExtra
from harness.suites import published_numbers

COLUMNS = (("CodeLLaMA-7B + LoRA", "POAD-Best"), ("GPT-3.5", "CAAFE"), ("GPT-4", "CAAFE"))


def score(task: str, program: str = "", **knobs: object) -> tuple[float, float, float]:
    """Returns AUC, its standard deviation, and the threshold of success."""
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
        (number.task_variant.replace("_", "-"), number.model, number.method): f"{number.value:.4f} "
        f"± {number.spread.value}"
        for number in published_numbers.numbers()
        if number.key == "poad" and number.metric == "ROC AUC" and number.spread
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
    if args.markdown:
        title = (
            "# DataSciCoding: the expert compared with published scores\n\n"
            "From one run of `benchmarks/datascicoding.py`: mean "
            "ROC AUC over 5 random halves ± standard deviation over them. Published: POAD (Wen et al., 2024), Table 4, "
            "from `harness.suites.published_numbers`; the rows drawn there are not known.\n\n"
        )
        args.markdown.write_text(title + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
