#!/usr/bin/env bash
# Sets everything up and runs a real search over a small real network: no account, no GPU.
set -euo pipefail
source "$(dirname "$0")/venv.sh"
make_venv
cd "$repo"
exec "$VENV/bin/python" -m tao_ray.tune configs/quickstart.yaml --yes "$@"
