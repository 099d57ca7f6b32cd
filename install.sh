#!/bin/sh
# Installs kernel-builder for the current user, with uv or pipx, whichever there is; with neither, in a virtual environment of
# its own. Nothing is installed as root.
#
#   sh install.sh              install, or bring up to date
#   sh install.sh --uninstall  remove
#
# KERNEL_BUILDER_REQUIREMENT names something else than the newest release: kernel-builder==0.1.0, a wheel, a directory.
set -eu

say() { printf '%s\n' "$*" >&2; }
fail() {
  say "error: $1"
  say "  hint: $2"
  exit 1
}

usage() {
  say "usage: sh install.sh [--uninstall]"
  say "Installs or updates kernel-builder for the current user, or removes it. KERNEL_BUILDER_REQUIREMENT names what to"
  say "install instead of the newest release: kernel-builder==0.1.0, a wheel, a directory."
}

settle() {
  [ -n "${HOME:-}" ] || fail "HOME is not set, so there is no place to install to" "set it: HOME=/home/you sh install.sh"
  requirement=${KERNEL_BUILDER_REQUIREMENT:-kernel-builder}
  data=${XDG_DATA_HOME:-$HOME/.local/share}/kernel-builder-venv
  bin=$HOME/.local/bin
  link=$bin/kernel-builder
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
  found=
  for candidate in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null 2>&1; then
      if new_enough "$candidate"; then
        printf '%s\n' "$candidate"
        return 0
      fi
      found="$found; $candidate is $("$candidate" --version 2>&1 || true)"
    fi
  done
  fail "Python 3.11 or newer is needed$found" "install a newer one (Debian: apt-get install python3 python3-venv), or uv, which brings one"
}

# Whether the command in ~/.local/bin is the one that with_venv put there.
is_ours() {
  case $(readlink "$link" 2>/dev/null) in
    "$data"/*) return 0 ;;
    *) return 1 ;;
  esac
}

made() {
  mkdir -p "$1" 2>/dev/null && [ -w "$1" ] ||
    fail "$1 cannot be written to" "make it writable, or set HOME to a directory that is: HOME=/path/you/own sh install.sh"
}

with_venv() {
  python=$(find_python)
  if [ -e "$link" ] && ! is_ours; then
    fail "$link already exists, and this script did not install it" "remove it with what installed it, such as pip uninstall kernel-builder, then run this again"
  fi
  made "$data"
  made "$bin"
  # A directory of its own for each installation: until the new one is whole, the old one stays in use.
  new=$data/$(date +%Y%m%d-%H%M%S)-$$
  trap 'rm -rf "$new"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  "$python" -m venv "$new" >&2 || fail "$python cannot make a virtual environment" "install its venv module (Debian: apt-get install python3-venv)"
  "$new/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement" >&2 ||
    fail "pip could not install $requirement" "see pip's message above; nothing was changed"
  "$new/bin/kernel-builder" --version >/dev/null ||
    fail "kernel-builder, installed from $requirement, does not run" "see its message above; nothing was changed"
  ln -sfn "$new/bin/kernel-builder" "$link"
  trap - EXIT
  for old in "$data"/*; do
    [ "$old" = "$new" ] || rm -rf "$old"
  done
}

has() { command -v "$1" >/dev/null 2>&1; }
by_uv() { has uv && uv tool list 2>/dev/null | grep -q '^kernel-builder '; }
by_pipx() { has pipx && pipx list --short 2>/dev/null | grep -q '^kernel-builder '; }

# What installed it before brings it up to date.
way() {
  if by_uv; then
    echo uv
  elif by_pipx; then
    echo pipx
  elif is_ours; then
    echo venv
  elif has uv; then
    echo uv
  elif has pipx; then
    echo pipx
  else
    echo venv
  fi
}

where_it_is() {
  case $1 in
    uv) uv tool dir --bin 2>/dev/null || echo "$bin" ;;
    pipx) pipx environment --value PIPX_BIN_DIR 2>/dev/null || echo "$bin" ;;
    *) echo "$bin" ;;
  esac
}

install() {
  way=$(way)
  case $way in
    uv)
      say "installing $requirement with uv"
      uv tool install --quiet --upgrade "$requirement" ||
        fail "uv could not install $requirement" "see uv's message above; nothing was changed"
      ;;
    pipx)
      say "installing $requirement with pipx"
      python=$(find_python)
      pipx install --force --python "$python" "$requirement" >&2 ||
        fail "pipx could not install $requirement" "see pipx's message above"
      ;;
    venv)
      say "installing $requirement into $data"
      with_venv
      ;;
  esac
  place=$(where_it_is "$way")
  version=$("$place/kernel-builder" --version) ||
    fail "$place/kernel-builder does not run" "remove it with sh install.sh --uninstall, and install it again"
  say "installed $version; next: kernel-builder doctor"
  first=$(command -v kernel-builder 2>/dev/null || true)
  if [ -z "$first" ]; then
    say "note: $place is not on PATH. Add it in your shell's start-up file: export PATH=\"$place:\$PATH\""
  elif [ "$first" != "$place/kernel-builder" ]; then
    say "note: $first comes first on PATH, so that is what runs; this one is $place/kernel-builder"
  fi
}

uninstall() {
  if by_uv; then
    uv tool uninstall --quiet kernel-builder
  elif by_pipx; then
    pipx uninstall kernel-builder >&2
  elif [ -d "$data" ]; then
    if is_ours; then
      rm -f "$link"
    fi
    rm -rf "$data"
  else
    fail "kernel-builder was not installed by this script" "remove it with what installed it, such as pip uninstall kernel-builder"
  fi
  say "removed; the store of toolchains stays: ${XDG_CACHE_HOME:-$HOME/.cache}/kernel-builder"
}

case "${1:-}" in
  "")
    settle
    install
    ;;
  --uninstall)
    settle
    uninstall
    ;;
  -h | --help) usage ;;
  *) fail "unknown option $1" "sh install.sh --help" ;;
esac
