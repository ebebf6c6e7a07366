"""Deleting an instance: asking is not enough."""

from __future__ import annotations

from tao_ray.platforms.brev.errors import BrevError, BrevTimeoutError
from tao_ray.platforms.brev.names import check_ours
from tao_ray.platforms.brev.records import Instance
from tao_ray.platforms.brev.steps import Desk


def delete(desk: Desk, name: str, timeout: float | None = None) -> None:
    """Delete the instance and see that it is gone, for as long as it takes or `timeout` s.

    Gone means: missing in two readable listings. Trouble is told and tried again, with
    growing pauses. Raises BrevTimeoutError, and nothing else but for an unknown name.
    """
    check_ours(name)
    started = desk.clock()
    absences = failures = 0
    asked: float | None = None
    while True:
        pause = desk.times.confirm
        try:
            instance = desk.account.look(name)
            if instance is None:
                absences += 1
                if absences >= 2 and desk.clock() >= desk.unsure.get(name, started):
                    desk.unsure.pop(name, None)
                    desk.say(name, "deleted", "gone")
                    return
            else:
                absences = 0
                pause = desk.times.poll
                if asked is None and instance.status == "DELETING":
                    # Whoever asked did not hear the answer.
                    asked = desk.clock()
                    desk.say(name, "accepted", "is being deleted")
                elif asked is None or _may_be_forgotten(desk, instance, asked):
                    desk.cli.delete(name)
                    asked = desk.clock()
                    desk.say(name, "accepted", "deletion requested")
                    pause = desk.times.confirm
            failures = 0
        except BrevError as error:
            failures += 1
            pause = desk.backoff(failures)
            desk.say(name, "trouble", f"not deleted yet: {error}")
        if timeout is not None and desk.clock() + pause - started > timeout:
            raise BrevTimeoutError(
                f"the instance is not verified to be gone after {timeout:g} s",
                where=name,
                remedy=f"it may still cost money: see `brev ls`, then `brev delete {name}`",
            )
        desk.sleep(pause)


def _may_be_forgotten(desk: Desk, instance: Instance, asked: float) -> bool:
    """A deletion that was accepted but does not show may have been lost: ask again."""
    patience = desk.times.poll if instance.status != "DELETING" else desk.times.appear * 5
    return desk.clock() - asked >= patience
