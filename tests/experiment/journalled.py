"""What the journal holds of a trial."""

from __future__ import annotations

from tao_ray.journal import Event


def ended(trial: str, loss: float, status: str = "completed") -> list[Event]:
    """A trial of one job and two epochs with the same loss."""
    return [
        Event("proposed", trial, {"config": {}}),
        Event("job", trial, {"job": f"{trial}-1", "segment": 1, "resume_epoch": 0}),
        *(
            Event("epoch", trial, {"epoch": e, "metrics": {}, "loss": loss, "job": f"{trial}-1"})
            for e in (1, 2)
        ),
        Event("job_end", trial, {"job": f"{trial}-1", "code": 0}),
        Event("ended", trial, {"status": status}),
    ]
