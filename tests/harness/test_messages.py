"""Shortening of conversations: the oldest turn goes first, the rules and the latest message stay."""

import pytest

from harness.prompting.messages import without_oldest_turn


def talk(roles: str) -> list[dict]:
    """Messages by the first letters of their roles; the content is the position."""
    names = {"s": "system", "u": "user", "a": "assistant", "t": "tool"}
    return [{"role": names[letter], "content": str(place)} for place, letter in enumerate(roles)]


@pytest.mark.parametrize(
    ("roles", "kept"),
    [
        ("suauau", "0345"),
        ("suau", "03"),
        ("uauau", "234"),
        ("uau", "2"),
        ("suatau", "05"),
        ("suaauau", "0456"),
        ("auau", "123"),
    ],
)
def test_the_oldest_exchange_is_removed_with_everything_up_to_the_next_user_message(roles, kept):
    shorter = without_oldest_turn(talk(roles))
    assert "".join(message["content"] for message in shorter) == kept


@pytest.mark.parametrize("roles", ["su", "u", "s", "", "sua"])
def test_the_last_exchange_is_never_removed(roles):
    assert without_oldest_turn(talk(roles)) is None
