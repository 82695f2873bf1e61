"""Managed model servers: vLLM and llama.cpp, started for a run and stopped with it."""
