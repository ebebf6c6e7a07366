"""Successive-halving arithmetic, in integers: a float logarithm loses a bracket at R = 243."""

from __future__ import annotations

from dataclasses import dataclass


def floor_log(value: int, base: int) -> int:
    """The largest k with ``base**k <= value``; value >= 1, base >= 2."""
    k = 0
    while base ** (k + 1) <= value:
        k += 1
    return k


def ceil_div(a: int, b: int) -> int:
    """``ceil(a / b)`` for positive integers."""
    return -(-a // b)


@dataclass(frozen=True)
class Rung:
    """`size` trials reach `epoch`; the best of them go on to the next rung."""

    epoch: int
    size: int


@dataclass(frozen=True)
class Bracket:
    """One successive halving. The last rung's epoch is R."""

    rungs: tuple[Rung, ...]

    @property
    def size(self) -> int:
        """Trials that enter the bracket."""
        return self.rungs[0].size

    @property
    def epochs(self) -> int:
        """Epochs trained by a full bracket whose trials resume from their rung's checkpoint."""
        before = (0, *(r.epoch for r in self.rungs))
        return sum(r.size * (r.epoch - b) for r, b in zip(self.rungs, before, strict=False))


def bracket(max_epochs: int, eta: int, s: int, size: int, min_epochs: int = 1) -> Bracket:
    """`size` trials, `s` halvings by `eta`: rungs at ``max_epochs // eta**(s - i)``.

    Rungs that integer division makes equal, or that lie below `min_epochs`, are merged into the
    first one.
    """
    rungs: list[Rung] = []
    for i in range(s + 1):
        epoch = max(min_epochs, max_epochs // eta ** (s - i))
        if rungs and rungs[-1].epoch == epoch:
            continue
        rungs.append(Rung(epoch, max(1, size // eta**i) if rungs else size))
    return Bracket(tuple(rungs))


def hyperband_brackets(max_epochs: int, eta: int, min_epochs: int = 1) -> tuple[Bracket, ...]:
    """The bracket table of Li et al., "Hyperband" (JMLR 2018), most exploratory bracket first.

    ``s_max = floor(log_eta(R / min_epochs))``; bracket s starts
    ``n = ceil((s_max + 1) / (s + 1) * eta**s)`` trials at ``R * eta**-s`` epochs.
    """
    s_max = floor_log(max_epochs // min_epochs, eta)
    return tuple(
        bracket(max_epochs, eta, s, ceil_div((s_max + 1) * eta**s, s + 1), min_epochs)
        for s in range(s_max, -1, -1)
    )


def geometric_rungs(min_epochs: int, max_epochs: int, eta: int) -> tuple[int, ...]:
    """``min_epochs * eta**k`` below `max_epochs`, then `max_epochs` itself (ASHA's rungs)."""
    rungs = []
    epoch = min(min_epochs, max_epochs)
    while epoch < max_epochs:
        rungs.append(epoch)
        epoch *= eta
    return (*rungs, max_epochs)
