"""Each known text of the CLI, what the user reads, and the remedy."""

from __future__ import annotations

import pytest

from tao_ray.platforms.base import CapacityError
from tao_ray.platforms.brev import (
    BrevAuthError,
    BrevCapacityError,
    BrevError,
    BrevNameTakenError,
    BrevNetworkError,
    BrevNotFoundError,
    BrevOutputError,
    BrevRefusedError,
    BrevServerError,
    BrevUnsupportedError,
)
from tao_ray.platforms.brev.errors import failure
from tao_ray.platforms.brev.records import find_json, instances

PROMPT = "You are currently logged out, would you like to log in? [Y/n]: "
TABLE = [
    (PROMPT, "EOF", BrevAuthError, "the session has ended", "make a new token"),
    ("WARN: malformed refresh token, logging out\n", "EOF", BrevAuthError, "session", "new token"),
    ("", "api: 401 Unauthorized", BrevAuthError, "session has ended", "BREV_API_TOKEN"),
    ("", "no orgs exist", BrevAuthError, "no active organisation", "brev set NAME"),
    (
        "",
        "400 duplicate workspace with name",
        BrevNameTakenError,
        "exists already, or is still being deleted",
        "wait until `brev ls` no longer shows it",
    ),
    (
        "",
        "g9 is not a recognized type",
        BrevRefusedError,
        "does not know this instance type",
        "brev search",
    ),
    (
        "",
        "location us-central9 is not available",
        BrevRefusedError,
        "the location behind this type is rejected",
        "choose another GPU or provider",
    ),
    (
        "",
        "g5 is currently unavailable (no capacity)",
        BrevCapacityError,
        "no capacity for this type now",
        "choose another GPU or provider",
    ),
    ("", "403 quota exceeded", BrevCapacityError, "quota is used up", "platform.machines"),
    ("", "insufficient credits", BrevCapacityError, "no credit left", "add credit"),
    (
        "",
        "unknown flag: --gpu",
        BrevUnsupportedError,
        "does not know an option",
        "install a current brev CLI",
    ),
    (
        "",
        "could not look up instance: timeout\nexit status 255",
        BrevNotFoundError,
        "could not look the instance up",
        "see `brev ls`",
    ),
    (
        "",
        "util.go:88: instance with id/name x not found",
        BrevNotFoundError,
        "no instance of this name",
        "brev set NAME",
    ),
    (
        "",
        "dial tcp: lookup api.brev.dev: no such host",
        BrevNetworkError,
        "could not be resolved",
        "DNS",
    ),
    (
        "",
        "ssh: Could not resolve hostname box: Name or service not known",
        BrevNetworkError,
        "could not be resolved",
        "shows RUNNING",
    ),
    (
        "",
        "dial tcp 1.2.3.4:443: connect: connection refused",
        BrevNetworkError,
        "refused or broke off",
        "firewall",
    ),
    (
        "",
        'RESTY ERROR Post "https://x": EOF\nEOF',
        BrevNetworkError,
        "broke off",
        "try again later",
    ),
    ("", "unexpected response: 502 Bad Gateway", BrevServerError, "service failed", "later"),
    ("", "box does not support stop", BrevRefusedError, "cannot be stopped", "brev delete NAME"),
    ("", "something new", BrevError, "failed with exit code 1", "run `brev create` by hand"),
]


@pytest.mark.parametrize(("stdout", "stderr", "kind", "message", "remedy"), TABLE)
def test_error_texts(
    stdout: str, stderr: str, kind: type[BrevError], message: str, remedy: str
) -> None:
    error = failure("create", 1, stdout, stderr)
    assert type(error) is kind
    text = str(error)
    assert text.startswith("brev create: ")
    assert message in text
    assert remedy in text.split("->", 1)[1]
    assert stderr.splitlines()[-1] in text, "what the CLI itself said must be there too"


def test_a_type_that_is_not_to_be_had_is_a_matter_of_capacity() -> None:
    assert isinstance(failure("create", 1, "", "no capacity"), CapacityError)


@pytest.mark.parametrize(
    "text",
    [
        '{"workspaces": null}',
        "null\n",
        "[]",
        'no oauth found for token\n{"workspaces": []}\n',
        f"{PROMPT}\n[x] odd\nWARN: [1, 2\nnull\nA new version is there!\n",
    ],
)
def test_no_instances_in_every_shape(text: str) -> None:
    assert instances(text) == []


@pytest.mark.parametrize(
    "text", ["", "nothing", "<html>", "{}", '{"error": "x"}', '["x"]', "[{}]", '{"workspaces": 3}']
)
def test_anything_else_is_not_no_instances(text: str) -> None:
    with pytest.raises(BrevOutputError, match="not the JSON"):
        instances(text)


def test_a_document_over_many_lines_between_others() -> None:
    text = 'WARN: x\n{\n  "workspaces": [\n    {"name": "a"}\n  ]\n}\nbye\n'
    assert find_json(text, "ls") == {"workspaces": [{"name": "a"}]}
