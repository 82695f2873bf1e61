"""The rules of VirtualHome: homes, dynamics, goals, published tasks and an exact planner."""
