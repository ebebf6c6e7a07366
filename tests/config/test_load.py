"""Reading: YAML's traps, the environment, --set, paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tao_ray.config import ConfigError, RunConfig, load_config

Load = Callable[..., RunConfig]
Refused = Callable[..., str]


def test_defaults_of_a_minimal_configuration(minimal: Load) -> None:
    config = minimal()
    assert config.model.action == "train"
    assert config.search.algorithm == "auto"
    assert config.search.parameters == "default"
    assert (config.search.trials, config.search.max_concurrent, config.search.seed) == (20, 1, 0)
    assert (config.failures.max_failures_in_a_row, config.failures.max_retries) == (3, 2)
    assert config.objective.at == "best"
    assert config.platform is None
    assert config.results is None


def test_an_empty_section_is_its_default(minimal: Load) -> None:
    assert minimal("search:\n  # trials: 4\ndata:\n").search.trials == 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E5", 1e5),
        ("-2e3", -2e3),
        (".5e-3", 0.5e-3),
        ("1.", 1.0),
        ("1.5e+3", 1500.0),
        ("12", 12),
        ("1_000", 1000),
        ("0x1F", 31),
        ("-0", 0),
        ("0123", "0123"),
        ("1:30", "1:30"),
        ("2024-01-31", "2024-01-31"),
        ("1.2.3", "1.2.3"),
        ("e5", "e5"),
        (".", "."),
        ("on", True),
        ("No", False),
        ("y", "y"),
        ("'on'", "on"),
        ("'1e-6'", "1e-6"),
        ("null", None),
        ("~", None),
        ("", None),
        ("${train.num_epochs}", "${train.num_epochs}"),
        ("=", "="),
    ],
)
def test_plain_scalars(minimal: Load, text: str, value: object) -> None:
    from_file = minimal(f"search:\n  options:\n    a: {text}\n").search.options["a"]
    from_set = minimal("", [f"model.overrides.a={text}"]).model.overrides["a"]
    assert (from_file, from_set) == (value, value)
    assert type(from_file) is type(from_set) is type(value)


def test_infinity_and_nan_are_values_of_overrides_but_no_range(
    minimal: Load, refused: Refused
) -> None:
    values = minimal("search: {options: {a: .inf, b: -.Inf, c: .nan}}").search.options
    assert values["a"] == float("inf")
    assert values["b"] == -float("inf")
    assert values["c"] != values["c"]
    text = refused("search: {parameters: {a: {min: -.inf}, b: {max: .nan}}}")
    assert text.count("must be a number") == 2


def test_keys_are_text_as_written_except_whole_numbers(minimal: Load) -> None:
    config = minimal("search: {options: {on: 1, null: 2, map: {0: cat, 1: dog, 1.5: x}}}")
    assert config.search.options == {
        "on": 1,
        "null": 2,
        "map": {0: "cat", 1: "dog", "1.5": "x"},
    }


def test_integers_stay_integers_in_ranges(minimal: Load) -> None:
    config = minimal("search: {parameters: {a: {min: 1, max: 2.5, step: 1}, b: {options: [1, 2]}}}")
    assert not isinstance(config.search.parameters, str)
    a = config.search.parameters["a"]
    assert [type(value) for value in (a.min, a.max, a.step)] == [int, float, int]


def test_anchors_and_merges(minimal: Load) -> None:
    config = minimal(
        "search:\n"
        "  parameters:\n"
        "    a: &range {min: 1, max: 2}\n"
        "    b: *range\n"
        "    c: {max: 5, <<: *range}\n"
        "    d: {<<: [*range, {scale: log}]}\n"
    )
    ranges = config.search.parameters
    assert not isinstance(ranges, str)
    assert ranges["a"] == ranges["b"]
    assert (ranges["c"].min, ranges["c"].max) == (1, 5)
    assert (ranges["d"].max, ranges["d"].scale) == (2, "log")


def test_the_environment_takes_the_type_of_its_place(load: Load) -> None:
    text = """\
name: a
model: {package: p, image: "repo/${env:TEXT}:${env:N}", backend: "${env:N}"}
data: {a.count: "${env:N}", a.dir: "d${env:N}"}
search:
  trials: ${env:N}
  max_epochs: ${env:EMPTY:-3}
  allow_disabled: ${env:YES}
  parameters: {a: {min: "${env:LR}", max: "${env:N}"}}
  options: {lr: "${env:LR}", list: ["${env:N}"], text: "${env:TEXT}", on: "${env:YES}"}
"""
    env = {"N": "7", "YES": "true", "TEXT": "0123", "LR": "1e-6", "EMPTY": ""}
    config = load(text, env=env)
    assert config.model.image == "repo/0123:7"
    assert config.model.backend == "7"
    assert type(config.model.backend) is str
    assert config.data.spec_keys == {"a.count": 7, "a.dir": str(config.directory / "d7")}
    assert config.search.trials == 7
    assert config.search.max_epochs == 3
    assert config.search.allow_disabled is True
    assert not isinstance(config.search.parameters, str)
    assert config.search.parameters["a"].min == 1e-6
    assert config.search.options == {"lr": 1e-6, "list": [7], "text": "0123", "on": True}


def test_the_processs_environment_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIALS", "9")
    path = tmp_path / "c.yaml"
    path.write_text("name: a\nmodel: {package: p}\nsearch:\n  trials: ${env:TRIALS}\n")
    assert load_config(path).search.trials == 9
    with pytest.raises(ConfigError, match="TRIALS is not set"):
        load_config(path, env={})


def test_set_replaces_adds_and_comes_last(minimal: Load) -> None:
    config = minimal(
        "search: {trials: 3, seed: 1}\n",
        [
            "search.trials=4",
            "search.trials=5",
            "platform.kind=local",
            "platform.env.THREADS=2",
            "objective={metric: loss, direction: minimize}",
        ],
    )
    assert (config.search.trials, config.search.seed) == (5, 1)
    assert config.platform is not None
    assert config.platform.env == {"THREADS": "2"}
    assert config.objective.direction == "minimize"


def test_set_knows_which_keys_contain_dots(minimal: Load) -> None:
    config = minimal(
        "",
        [
            "model.overrides.train.optim.lr=1e-4",
            "data.dataset.root=s3://b/x",
            "data.annotations.train_annotation=t.json",
            "search.parameters.train.optim.lr.max=1e-2",
            "search.parameters.train.optim.lr.scale=log",
            "search.parameters.augmentation.scale={min: 1, max: 2}",
        ],
    )
    assert config.model.overrides == {"train.optim.lr": 1e-4}
    assert config.data.spec_keys == {"dataset.root": "s3://b/x"}
    assert config.data.annotations == {"train_annotation": "t.json"}
    ranges = config.search.parameters
    assert not isinstance(ranges, str)
    assert (ranges["train.optim.lr"].max, ranges["train.optim.lr"].scale) == (1e-2, "log")
    assert ranges["augmentation.scale"].min == 1


def test_a_set_override_comes_after_those_of_the_file(load: Load) -> None:
    text = "name: a\nmodel: {package: p, overrides: {a.b: 1, a: {b: 2}}}\n"
    config = load(text, ["model.overrides.a.b=3"])
    assert list(config.model.overrides.items()) == [("a", {"b": 2}), ("a.b", 3)]


def test_set_heals_what_it_replaces(minimal: Load) -> None:
    text = "search:\n  trials: ${env:MISSING}\n  seed: 1\n  seed: 2\n"
    assert minimal(text, ["search.trials=4", "search.seed=5"]).search.trials == 4


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "run.yaml").write_text(
        "name: a\n"
        "model:\n"
        "  package: ../packages/dino\n"
        "  spec: base.yaml\n"
        "  checkpoint: ~/weights.pth\n"
        "  teacher: hf_model://org/name\n"
        "  overrides: {some.path: data/x}\n"
        "data:\n"
        "  train: [../data/a, s3://bucket/b, /abs]\n"
        "  eval: ${results_dir}/val\n"
        "  dataset.dir: data\n"
        "  dataset.sources: [one, {dir: ./two, type: coco, list: [~/three]}]\n"
        "platform: {kind: local, activate: venv/bin/activate}\n"
        "results: out\n"
    )
    monkeypatch.chdir(tmp_path)
    config = load_config("configs/run.yaml")
    here = tmp_path / "configs"
    assert config.directory == here
    assert config.model.package == "../packages/dino"
    assert config.model.spec == str(here / "base.yaml")
    assert config.model.checkpoint == "/home/someone/weights.pth"
    assert config.model.teacher == "hf_model://org/name"
    assert config.model.overrides == {"some.path": "data/x"}
    assert config.data.train == [str(tmp_path / "data" / "a"), "s3://bucket/b", "/abs"]
    assert config.data.eval == "${results_dir}/val"
    assert config.data.spec_keys == {
        "dataset.dir": str(here / "data"),
        "dataset.sources": [
            str(here / "one"),
            {"dir": str(here / "two"), "type": "coco", "list": ["/home/someone/three"]},
        ],
    }
    assert config.platform is not None
    assert config.platform.activate == str(here / "venv/bin/activate")
    assert config.results == str(here / "out")


@pytest.mark.parametrize("name", ["run-1", "_x", "a.b", "A" * 64])
def test_names_that_are_directory_names(load: Load, name: str) -> None:
    assert load(f"name: {name}\nmodel: {{package: p}}\n").name == name


@pytest.mark.parametrize("name", [".", "..", "a/b", "-x", ".x", "'a b'", "A" * 65, '"a\\n"', "''"])
def test_names_that_are_not(load: Load, name: str) -> None:
    with pytest.raises(ConfigError, match="name: must be a directory name"):
        load(f"name: {name}\nmodel: {{package: p}}\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(binary)


def test_problems_carry_their_parts(minimal: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        minimal("search:\n  trials: 0\n", ["search.seed=x"])
    first, second = caught.value.problems
    assert (first.file, first.line, first.key, first.value) == ("run.yaml", 4, "search.trials", "0")
    assert (second.file, second.line, second.key) == ("--set search.seed", None, "search.seed")


def test_no_secret_in_an_error(minimal: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        minimal(
            "platform: {kind: local, env: ['${env:T}'], slots: '${env:T}'}\n"
            "objective: {at: 'x${env:T}'}\nresults: ['${env:T}']\n",
            ["search.algorithm=${env:T}", "model.key=[s3cret]"],
            {"T": "s3cret"},
        )
    assert len(caught.value.problems) == 6
    assert "s3cret" not in str(caught.value)


def test_a_tag_that_its_text_does_not_fit(refused: Refused) -> None:
    text = refused("search: {seed: !!int x}", ["search.trials=!!int ''"])
    assert text.count("the text does not fit the YAML tag tag:yaml.org,2002:int") == 2
