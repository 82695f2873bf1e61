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
        ("suatau", "0345"),
        ("suatat", "0345"),
        ("suattat", "0356"),
        ("suaauau", "0456"),
        ("auau", "123"),
    ],
)
def test_the_oldest_exchange_is_removed_up_to_what_the_next_reply_answers(roles, kept):
    shorter = without_oldest_turn(talk(roles))
    assert "".join(message["content"] for message in shorter) == kept


def test_the_result_of_a_removed_call_becomes_a_user_message_and_other_results_go():
    shorter = without_oldest_turn(talk("suattat"))
    assert [message["role"] for message in shorter] == ["system", "user", "assistant", "tool"]


@pytest.mark.parametrize("roles", ["su", "u", "s", "", "sua"])
def test_the_last_exchange_is_never_removed(roles):
    assert without_oldest_turn(talk(roles)) is None
