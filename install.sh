#!/bin/sh
# Installs kernel-builder for the current user, with uv or pipx, whichever there is; with neither, in a virtual environment of
# its own. Nothing is installed as root.
#
#   sh install.sh              install, or bring up to date
#   sh install.sh --uninstall  remove
#
# KERNEL_BUILDER_REQUIREMENT names something else than the newest release: kernel-builder==0.1.0, a wheel, a directory.
set -eu

requirement=${KERNEL_BUILDER_REQUIREMENT:-kernel-builder}
data=${XDG_DATA_HOME:-$HOME/.local/share}/kernel-builder-venv
bin=$HOME/.local/bin

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "error: $1"
  say "  hint: $2"
  exit 1
}

find_python() {
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null 2>&1 &&
      "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  fail "Python 3.11 or newer is needed" "apt-get install python3 python3-venv, or install uv, which brings one"
}

with_venv() {
  python=$(find_python)
  # A directory of its own for each installation: until the new one is whole, the old one stays in use.
  new=$data/$(date +%Y%m%d-%H%M%S)-$$
  mkdir -p "$data" "$bin"
  trap 'rm -rf "$new"' EXIT
  "$python" -m venv "$new" || fail "the virtual environment could not be made" "apt-get install python3-venv"
  "$new/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement" ||
    fail "pip could not install $requirement" "see pip's message above; nothing was changed"
  ln -sfn "$new/bin/kernel-builder" "$bin/kernel-builder"
  trap - EXIT
  for old in "$data"/*; do
    [ "$old" = "$new" ] || rm -rf "$old"
  done
}

install() {
  if command -v uv >/dev/null 2>&1; then
    say "installing $requirement with uv"
    uv tool install --quiet --upgrade "$requirement"
  elif command -v pipx >/dev/null 2>&1; then
    say "installing $requirement with pipx"
    pipx install --force "$requirement" >&2
  else
    say "installing $requirement into $data"
    with_venv
  fi
  PATH=$bin:$PATH
  command -v kernel-builder >/dev/null 2>&1 ||
    fail "kernel-builder was installed, but is not on PATH" "add $bin to PATH"
  say "installed $(kernel-builder --version); next: kernel-builder doctor"
}

uninstall() {
  if command -v uv >/dev/null 2>&1 && uv tool list 2>/dev/null | grep -q '^kernel-builder '; then
    uv tool uninstall --quiet kernel-builder
  elif command -v pipx >/dev/null 2>&1 && pipx list --short 2>/dev/null | grep -q '^kernel-builder '; then
    pipx uninstall kernel-builder >&2
  elif [ -d "$data" ]; then
    rm -rf "$data"
    rm -f "$bin/kernel-builder"
  else
    fail "kernel-builder was not installed by this script" "remove it with what installed it, such as pip uninstall kernel-builder"
  fi
  say "removed; the store of toolchains stays: ${XDG_CACHE_HOME:-$HOME/.cache}/kernel-builder"
}

case "${1:-}" in
  "") install ;;
  --uninstall) uninstall ;;
  -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0" ;;
  *) fail "unknown option $1" "sh install.sh --help" ;;
esac
