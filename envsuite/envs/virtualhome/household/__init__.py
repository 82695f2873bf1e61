"""Version 1 of VirtualHome's drawn homes: common sense, ordered parts, and splits that differ in structure."""
