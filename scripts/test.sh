#!/usr/bin/env bash
# Installs what the tests need and runs them. Arguments go to pytest.
set -euo pipefail
source "$(dirname "$0")/venv.sh"
make_venv test
cd "$repo"
if [ -x scripts/test_services.sh ]; then
    # Real servers for the tests; those of a missing one are skipped with a reason.
    scripts/test_services.sh || echo "note: not all test services could be installed"
fi
exec "$VENV/bin/python" -m pytest "$@"
