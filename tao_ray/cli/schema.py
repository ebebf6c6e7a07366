"""``tao-ray schema``: the JSON Schema of a configuration."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tao_ray.config import json_schema


def add_parser(subparsers: Any) -> None:
    subparsers.add_parser(
        "schema",
        description="Print the JSON Schema (draft 2020-12) of a configuration. An editor that is "
        "given it completes keys and marks mistakes.",
    )


def run(args: argparse.Namespace) -> int:
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
    return 0
