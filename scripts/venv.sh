# Sourced by the other scripts: makes the virtual environment .venv with tao_ray in it.
#   PYTHON  interpreter to use (default: the first of python3.12, 3.11, 3.10, python3 that fits)
#   VENV    where the environment is (default: .venv in the checkout)

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=${VENV:-$repo/.venv}

fits() { "$1" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3.12 python3.11 python3.10 python3; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null && fits "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    echo "error: no Python 3.10, 3.11 or 3.12 found" >&2
    echo "  -> apt-get install python3, or set PYTHON to an interpreter" >&2
    return 2
}

# make_venv [EXTRA]: the environment, with the package and one of its extras.
make_venv() {
    local python packages="$repo${1:+[$1]}"
    if ! fits "$VENV/bin/python"; then
        python=$(find_python) || return
        if ! "$python" -m venv --clear "$VENV" 2>/dev/null; then
            # Debian ships Python without ensurepip.
            if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
                { apt-get update && apt-get install -y "$(basename "$(readlink -f \
                    "$(command -v "$python")")")-venv"; } >/dev/null || return
                "$python" -m venv --clear "$VENV" || return
            else
                echo "error: $python cannot make a virtual environment" >&2
                echo "  -> sudo apt-get install python3-venv" >&2
                return 2
            fi
        fi
    fi
    echo "installing tao_ray into $VENV ..."
    "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$packages"
}
