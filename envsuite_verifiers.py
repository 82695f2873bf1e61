"""Plugin module for `verifiers`, which looks for top-level modules with an `__all__`."""

from harness.interop.verifiers import Chat, Games, GamesEnv

__all__ = ["Chat", "Games", "GamesEnv"]
