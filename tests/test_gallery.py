"""The gallery shows the numbers of the cards and episodes that are played as shown."""

import pytest

from docs import _drawings, _gallery
from envsuite.errors import MissingExtra

PAGE = (_gallery.DOCS / "envs" / "gallery.md").read_text()
FAST = ("alfworld", "babyai", "overcooked", "virtualhome")  # the others compile games or open sandboxes


@pytest.mark.parametrize("entry", _gallery.ENTRIES, ids=lambda entry: entry.family)
def test_the_numbers_are_those_of_the_cards(entry):
    assert _gallery.table(entry) in PAGE, "run `make gallery`"


@pytest.mark.parametrize("entry", _gallery.ENTRIES, ids=lambda entry: entry.family)
def test_every_family_has_its_picture(entry):
    picture = _gallery.PICTURES / f"{entry.family}.{_drawings.SUFFIX[entry.family]}"
    assert picture.stat().st_size > 500
    assert f"images/gallery/{picture.name})" in PAGE


@pytest.mark.parametrize("family", FAST)
def test_the_episode_is_played_as_shown(family):
    (entry,) = (entry for entry in _gallery.ENTRIES if entry.family == family)
    try:
        text = _gallery.episode(entry)
    except MissingExtra as error:
        pytest.skip(str(error))
    assert text in PAGE, "run `make gallery`"
