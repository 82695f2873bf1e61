"""What all commands have in common."""

import pytest

from harness import cli
from harness.stats.summary import result_table, summarise


def test_names_are_shown_as_they_are(capsys):
    """Of '[v2]' nothing was shown before, and of ':star:' a picture; '[/x]' was a traceback."""
    name = "runs/[v2]/ft:acme:star:[/x]"
    cli.console().print(result_table(name, [(name, summarise([]))]))
    cli.console().print(f"records: {name}", highlight=False, soft_wrap=True)
    assert capsys.readouterr().out.count(name) == 3


@pytest.mark.parametrize(
    ("resumes", "said"), [("", "\nstopped\n"), ("--resume", "are kept, and --resume continues from there")]
)
def test_only_a_command_that_goes_on_says_so_when_it_is_stopped(resumes, said, capsys):
    def command(argv):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as done:
        cli.run(command, [], resumes)
    assert done.value.code == 130 and said in capsys.readouterr().err
