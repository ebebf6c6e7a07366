"""A driver that follows a made run, to be killed.

``driver.py MODE DIRECTORY EVENTS [MOMENT CALL]`` applies the journal's events up to the number
`EVENTS`, beginning at what the driver before it had reached, and kills itself at a call of
`MOMENT`, if that is given.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import made_run

from tao_ray.config import WandbConfig
from tao_ray.journal import read_events
from tao_ray.tracking import wandb as tracking
from tao_ray.tracking.tracker import Background, Trackers
from tao_ray.tracking.wandb_cursor import Cursor
from tao_ray.trial.state import RunState

MOMENTS: dict[str, tuple[type, str, bool]] = {
    "before finish": (tracking._Stream, "finish", False),
    "before the mark": (Cursor, "publish", False),
    "before the move": (Cursor, "_move", False),
    "after the move": (Cursor, "_move", True),
}


def die_at(moment: str, call: int) -> None:
    """SIGKILL at the `call`-th call of a moment."""
    owner, name, after = MOMENTS[moment]
    original: Callable[..., Any] = getattr(owner, name)
    calls = 0

    def wrapped(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def main(mode: Literal["online", "offline"], directory: Path, until: int) -> None:
    reached = directory / "reached"
    begin = int(reached.read_text()) if reached.exists() else 0
    events = read_events(directory / "journal.sqlite")
    state = RunState.fold(events[:begin])
    config = WandbConfig(project="project", mode=mode)
    info = made_run.info(directory)
    trackers = Trackers(
        [
            (
                "W&B",
                Background(
                    lambda say: tracking.WandbTracker(
                        config, info, tracking.is_online(config), say
                    ),
                    print,
                    60,
                ),
            )
        ],
        print,
    )
    for number, event in enumerate(events[begin:until], begin + 1):
        state.apply(event)
        reached.write_text(str(number))
        trackers.update(state)
        time.sleep(0.02)
    trackers.close(state, None)


if __name__ == "__main__":
    tracking._OPEN_RUNS = 2  # one less than trials run at a time
    tracking._FINISH_TIMEOUT_S = tracking._INIT_TIMEOUT_S = 10.0
    if len(sys.argv) > 4:
        die_at(sys.argv[4], int(sys.argv[5]))
    chosen: Any = sys.argv[1]
    main(chosen, Path(sys.argv[2]), int(sys.argv[3]))
