"""`brev search`."""

from __future__ import annotations

import json

from brev_emulator.account import Account


def search(account: Account, flags: dict[str, str]) -> int:
    rows = sorted(account.data["catalogue"], key=lambda row: row["price_per_hour"])
    if "json" in flags:
        print(json.dumps(rows, indent=2))
        return 0
    print(" TYPE  GPU  COUNT  $/HR")
    for row in rows:
        print(f" {row['type']}  {row['gpu_name']}  {row['gpu_count']}  {row['price_per_hour']}")
    print(f"Found {len(rows)} GPU instance types")
    return 0
