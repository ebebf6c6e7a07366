"""What is generated from the models: the documentation and the JSON Schema."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tao_ray.config import ALGORITHMS, ParameterRange, RunConfig, json_schema, load_config
from tao_ray.config.base import Section
from tao_ray.config.describe import hints, section_of
from tao_ray.config.names import DEFAULT_ALGORITHM, PLANNED_ALGORITHMS, PLATFORMS

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "docs" / "configuration.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_documentation_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("gen_docs", REPO / "scripts" / "gen_docs.py")
    assert spec is not None
    assert spec.loader is not None
    generator: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert PAGE.read_text(encoding="utf-8") == generator.render(), "run scripts/gen_docs.py"


def test_every_key_is_described() -> None:
    nested = [section_of(annotation) for annotation in hints(RunConfig).values()]
    sections: list[type[Section]] = [RunConfig, ParameterRange, *filter(None, nested)]
    for section in sections:
        for key, field in section.model_fields.items():
            assert field.description, f"{section.__name__}.{key}"


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_documented_examples_are_valid(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    config = load_config(path, env={})
    Draft202012Validator(json_schema()).validate(config.dump())


def test_the_documentation_has_examples() -> None:
    assert len(EXAMPLES) == 2


def test_the_json_schema_is_one() -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("section", "valid"),
    [
        ({"search": {"trials": 3}}, True),
        ({"search": {"trials": 0}}, False),
        ({"search": {"trials": "${env:TRIALS}"}}, True),
        ({"search": {"trials": "three"}}, False),
        ({"search": {"algorithm": "llm"}}, False),
        ({"search": {"algorithm": "asha"}}, True),
        ({"search": {"parameters": {"a.b": {"min": 1}}}}, True),
        ({"search": {"parameters": {"a.b": {"mim": 1}}}}, False),
        ({"search": {"parameters": "all"}}, False),
        ({"serach": {}}, False),
        ({"data": {"train": ["a", "b"], "dataset.x": {"any": 1}}}, True),
        ({"data": {"trian": "a"}}, False),
        ({"platform": {"kind": "local", "env": {"A": 1}}}, True),
        ({"platform": {"kind": "brev", "gpu": "L40S", "machines": 2}}, True),
        ({"platform": {"kind": "brev", "slots": 2}}, False),
        ({"platform": {"kind": "slurm"}}, False),
    ],
)
def test_the_json_schema_judges_as_we_do(
    minimal: Callable[..., RunConfig],
    refused: Callable[..., str],
    section: dict[str, Any],
    valid: bool,
) -> None:
    document = {"name": "a", "model": {"package": "p"}, **section}
    assert Draft202012Validator(json_schema()).is_valid(document) is valid
    text = yaml.safe_dump(section)
    if valid:
        minimal(text, env={"TRIALS": "3"})
    else:
        assert refused(text)


def test_names_are_either_built_or_planned() -> None:
    assert not set(ALGORITHMS) & set(PLANNED_ALGORITHMS)
    assert DEFAULT_ALGORITHM in ALGORITHMS


@pytest.mark.parametrize("name", PLANNED_ALGORITHMS)
def test_every_planned_algorithm_is_refused(refused: Callable[..., str], name: str) -> None:
    text = refused(f"search: {{algorithm: {name}}}\n")
    assert "planned, not available in this version" in text
    assert f"available: {', '.join(ALGORITHMS)}" in text


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_every_planned_platform_is_refused(refused: Callable[..., str], name: str) -> None:
    text = refused(f"platform: {{kind: {name}, anything: 1}}\n")
    assert "platform.kind: planned, not available in this version" in text
    assert f"available: {', '.join(PLATFORMS)}" in text
