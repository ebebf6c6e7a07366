"""Real servers on loopback for tests, each with its own files and ports."""
