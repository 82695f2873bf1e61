"""The textworld engine in a worker process, its client, and patches that make it faster."""
