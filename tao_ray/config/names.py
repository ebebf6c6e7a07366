"""The names a configuration may use, and those that are planned but not available yet.

This is the one place that lists them. A planned name is refused with a text that says so; it is
never replaced by another. The lists of what is built are kept in step with the registries of
`search` and `platforms` by their tests.
"""

from __future__ import annotations

ALGORITHMS = (
    "auto",
    "random",
    "bayesian",
    "bfbo",
    "tpe",
    "hyperband",
    "hyperband_es",
    "asha",
    "bohb",
    "dehb",
    "pbt",
    "pb2",
)
PLANNED_ALGORITHMS = ("llm", "hybrid", "autoresearch")
DEFAULT_ALGORITHM = "auto"

PLATFORMS = ("local", "docker", "ssh", "brev")
PLANNED_PLATFORMS = ("slurm", "kubernetes")

NOT_YET = "planned, not available in this version"
