"""Waiting for an instance: RUNNING is not ready, only an answer over its link is."""

from __future__ import annotations

from tao_ray.platforms.base import LinkError, MachineLostError
from tao_ray.platforms.brev.errors import (
    ANOTHER_TYPE,
    BrevAuthError,
    BrevError,
    BrevProvisionError,
)
from tao_ray.platforms.brev.steps import FINAL, Desk
from tao_ray.platforms.machine import Machine

_PROBE_S = 2.0


def until_ready(desk: Desk, name: str) -> Machine:
    """The link to the instance once it answers. Raises BrevProvisionError if it will not."""
    since = desk.clock()
    seen = started = False
    text = ""
    while True:
        waited = desk.clock() - since
        pause, locked_out = desk.times.poll, False
        try:
            instance = desk.account.look(name, desk.clock() - desk.times.poll / 2)
        except BrevAuthError as error:
            state, locked_out = str(error), True
        except BrevError as error:
            if not error.transient:
                raise
            state = f"`brev ls` does not answer: {error.message}"
        else:
            if instance is None:
                state = "not in `brev ls`"
                if seen or waited >= desk.times.appear:
                    raise _stuck(name, "it vanished" if seen else "it never appeared")
            else:
                seen = True
                state = f"{instance.status} {instance.build_status}".strip()
                if instance.status in ("FAILURE", "DELETING"):
                    raise _stuck(name, f"its state is {state}")
                if instance.status == "STOPPED" and not started:
                    desk.cli.start(name)
                    started = True
                if instance.running:
                    pause = min(pause, _PROBE_S)  # it is billed, and will answer soon
                    try:
                        machine = reach(desk, name)
                    except BrevAuthError as error:
                        state, locked_out = str(error), True
                    except (LinkError, MachineLostError) as error:
                        state += f", no answer over SSH yet: {error.message}"
                    else:
                        desk.say(name, "ready", f"{state}, answers over SSH")
                        return machine
        if state != text:
            text = state
            desk.say(name, "trouble" if locked_out else "waiting", state)
        if waited >= desk.times.ready:
            raise _stuck(name, f"not ready after {desk.times.ready:g} s: {state}")
        desk.sleep(pause)


def reach(desk: Desk, name: str) -> Machine:
    """A link that has carried a command. Raises LinkError, BrevAuthError."""
    try:
        machine = desk.connect(name)
    except (BrevAuthError, *FINAL):
        raise
    except BrevError as error:
        raise LinkError(error.message, where=name, remedy=error.remedy) from error
    try:
        result = machine.run("true", timeout=20.0)
        if result.code:
            raise LinkError(f"a first command ended with exit code {result.code}", where=name)
    except BaseException:
        machine.close()
        raise
    return machine


def _stuck(name: str, what: str) -> BrevProvisionError:
    return BrevProvisionError(
        f"the instance did not become ready: {what}", where=name, remedy=ANOTHER_TYPE
    )
