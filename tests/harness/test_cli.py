"""Behaviour that all commands share."""

import pytest

from harness import cli
from harness.stats.summary import result_table, summarise


def test_names_with_markup_are_printed_unchanged(capsys):
    """Prints '[v2]', ':star:' and '[/x]' literally instead of reading them as Rich markup."""
    name = "runs/[v2]/ft:acme:star:[/x]"
    cli.console().print(result_table(name, [(name, summarise([]))]))
    cli.console().print(f"records: {name}", highlight=False, soft_wrap=True)
    assert capsys.readouterr().out.count(name) == 3


@pytest.mark.parametrize(
    ("resumes", "message"), [("", "\nstopped\n"), ("--resume", "are kept, and --resume continues from there")]
)
def test_an_interrupted_command_mentions_resume_only_if_it_can_resume(resumes, message, capsys):
    def command(argv):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as done:
        cli.run(command, [], resumes)
    assert done.value.code == 130 and message in capsys.readouterr().err
