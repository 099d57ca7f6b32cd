# shellcheck shell=bash disable=SC2154
# Sourced by quickstart and test: a virtual environment in .venv with this package, the given extras and torch.
# Usage: setup_environment EXTRAS; leaves its interpreter in $python. KERNEL_BUILDER_TORCH_INDEX may name an index to
# look for torch on, besides the one that pip is configured for. Nothing is compiled to bytecode: that is half of what
# an installation of torch costs, and each caller knows better what will be imported.

torch=2.13.0

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

# Whether this environment has that torch, whichever build of it.
has_torch() {
  "$python" -c 'import sys, importlib.metadata as m; sys.exit(m.version("torch").split("+")[0] != sys.argv[1])' \
    "$torch" 2>/dev/null
}

# Say what is about to be fetched. pip takes the CPU build, 2.13.0+cpu, wherever an index has it.
announce() {
  others="other packages (about 60 MB)"
  if has_torch; then
    echo "installing kernel-builder and what it is tried with: $others, as far as they are missing" >&2
  elif [ "$(uname -s)" != Linux ]; then
    echo "fetching torch $torch (about 80 MB) and $others" >&2
  elif "$python" -m pip index versions "$@" torch 2>/dev/null | grep -qF "$torch+cpu"; then
    echo "fetching torch $torch+cpu, the build for CPUs (about 200 MB), and $others" >&2
  else
    echo "fetching torch $torch with the CUDA libraries that it needs (about 2.8 GB, 5 GB on disk) and $others;" >&2
    echo "the package index has no build for CPUs alone (200 MB); KERNEL_BUILDER_TORCH_INDEX can name one that has" >&2
  fi
}

setup_environment() {
  extras=$1
  command -v g++ >/dev/null || fail "a C++ compiler is needed" "apt-get install g++, or dnf install gcc-c++ libstdc++-static"
  base=$(find_python)
  python=$root/.venv/bin/python
  if [ ! -x "$python" ] || ! "$python" -m pip --version >/dev/null 2>&1; then
    echo "making the virtual environment $root/.venv" >&2
    "$base" -m venv "$root/.venv" ||
      fail "the virtual environment could not be made" "apt-get install python3-venv"
  fi
  set -- --disable-pip-version-check
  [ -z "${KERNEL_BUILDER_TORCH_INDEX:-}" ] || set -- "$@" --extra-index-url "$KERNEL_BUILDER_TORCH_INDEX"
  announce "$@"
  # Of pip's words, those on large files as they are fetched.
  "$python" -m pip install "$@" --progress-bar off --no-compile --editable "${root}[$extras]" "torch==$torch" |
    { grep --line-buffered -E '^ *Downloading .*[0-9] MB\)' || true; } >&2
}
