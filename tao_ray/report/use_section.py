"""The section that says how the winner is used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from tao_ray.errors import TaoRayError
from tao_ray.network.spec import flatten
from tao_ray.report.document import Block, Code, Section, Text, code
from tao_ray.report.handover import LONGER, handover
from tao_ray.report.machines import rent_note
from tao_ray.report.run_data import RunData


def use(run: RunData) -> Section | None:
    """Where the checkpoint is and the commands that take it further."""
    if run.best is None:
        return None
    if run.result is None or run.result["best"] is None:
        text = "The checkpoint and ready commands are listed here when the run has ended."
        return Section("How to use it", [Text(text)])
    checkpoint = run.result["best"]["checkpoint"]
    blocks: list[Block] = []
    if checkpoint:
        size = f", {checkpoint['bytes'] / 1e6:.1f} MB" if checkpoint["bytes"] else ""
        judged = run.result["best"]["epoch"]
        kept = "" if checkpoint["epoch"] == judged else f"; the best epoch, {judged}, kept none"
        blocks.append(Text(f"Checkpoint of the winner (epoch {checkpoint['epoch']}{size}{kept}):"))
        places = [checkpoint["path"], *([checkpoint["uri"]] if checkpoint.get("uri") else [])]
        blocks.append(Code("\n".join(places)))
        blocks += _numbering(checkpoint)
    else:
        blocks.append(Text("No checkpoint of the winner was found; its spec trains it again."))
    try:
        made = handover(run)
    except TaoRayError as error:
        blocks.append(Text(f"Ready commands cannot be shown: {error.message}"))
        return Section("How to use it", blocks)
    steps = [f"tao-ray export {run.path} --to winner", "cd winner"]
    commands = made.data["commands"]
    image = run.result["model"]["image"]
    where = f" in the container {code(image)}" if image else ""
    if "evaluate" in commands:
        steps += [f"# evaluate the checkpoint{where.replace('`', '')}", commands["evaluate"]]
    steps += [f"# train the winning spec again{where.replace('`', '')}", commands["train"]]
    rents = rent_note(run)
    longer = f"# train it longer, {made.epochs} epochs, supervised as in the search"
    steps += [longer + (f": {rents}" if rents else ""), commands["train_longer"]]
    blocks.append(Text(f"The winner in a directory of its own, then each next step{where}:"))
    blocks.append(Code("\n".join(steps)))
    blocks.append(
        Text(
            f"`handover.json` there is for programs; {code(LONGER)} is an ordinary configuration "
            "whose defaults are the winner. For another seed set the network's seed key in its "
            "`model.overrides`"
            + (
                ", here `train.seed`."
                if "train.seed" in flatten(run.result["best"]["spec"])
                else "."
            )
        )
    )
    return Section("How to use it", blocks)


def _numbering(checkpoint: Mapping[str, Any]) -> list[Block]:
    """A remark where a file's own number is not that of its epoch."""
    name, epoch = PurePosixPath(checkpoint["path"]).name, checkpoint["epoch"]
    numbers = re.findall(r"\d+", name)
    if not numbers or not epoch or int(numbers[-1]) != epoch - 1:
        return []
    text = f"The network counts its files from 0: {code(name)} is what epoch {epoch} left."
    return [Text(text, small=True)]
