# Sourced by quickstart and test: a virtual environment in .venv with this package and the given extras.
# Usage: setup_environment EXTRAS [REQUIREMENT...]; leaves its interpreter in $python.

fail() {
  printf 'error: %s\n  hint: %s\n' "$1" "$2" >&2
  exit 1
}

find_python() {
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is needed" "apt-get install python3 python3-venv, or dnf install python3.12"
}

setup_environment() {
  extras=$1
  shift
  command -v g++ >/dev/null || fail "a C++ compiler is needed" "apt-get install g++, or dnf install gcc-c++ libstdc++-static"
  base=$(find_python)
  python=$root/.venv/bin/python
  if [ ! -x "$python" ] || ! "$python" -m pip --version >/dev/null 2>&1; then
    echo "making the virtual environment $root/.venv" >&2
    "$base" -m venv "$root/.venv" ||
      fail "the virtual environment could not be made" "apt-get install python3-venv"
  fi
  echo "installing kernel-builder and what it is tried with (torch is the largest part)" >&2
  "$python" -m pip install --quiet --disable-pip-version-check --editable "$root[$extras]" "$@"
}
