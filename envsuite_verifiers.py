"""The id under which `verifiers` finds every task: its plugins are top-level modules with an `__all__`."""

from harness.interop.verifiers import Chat, Games, GamesEnv

__all__ = ["Chat", "Games", "GamesEnv"]
