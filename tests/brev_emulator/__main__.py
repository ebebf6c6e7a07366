"""``python -m brev_emulator DIR [PROFILE]``: a Brev to rehearse with, until Ctrl-C or Enter."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from brev_emulator.emulator import BrevEmulator
from brev_emulator.profiles import CURRENT, PROFILES


def main() -> None:
    profile = sys.argv[2] if len(sys.argv) > 2 else CURRENT
    if len(sys.argv) not in (2, 3) or profile not in PROFILES:
        sys.exit(f"usage: python -m brev_emulator DIR [{'|'.join(PROFILES)}]")
    if reason := BrevEmulator.missing():
        sys.exit(reason)
    with BrevEmulator(Path(sys.argv[1]), profile) as emulator:
        emulator.log_in()
        print("In another terminal:\n")
        print(f'  export HOME="{emulator.home}" PATH="{emulator.executable.parent}:$PATH"\n')
        print(
            f"The account's ledger: {emulator.directory}/ledger.jsonl. Ctrl-C ends all instances."
        )
        try:
            while True:
                time.sleep(0.5)
                emulator.instances()  # moves them on: boot, sshd, deletion
        except KeyboardInterrupt:
            print()
        for bill in emulator.bills():
            state = "STILL ALIVE" if bill.alive else "deleted"
            print(f"{bill.name}: {bill.billed_s:.0f} s, {bill.cost:.4f} USD, {state}")


if __name__ == "__main__":
    main()
