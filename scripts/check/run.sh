#!/usr/bin/env bash
# Checks the built site, then the checks themselves, on planted faults.
# Usage: run.sh ROOT PYTHON
#
# What is missing is installed: node and chromium by apt-get, where that is
# allowed, and node's packages beside this file. Where there is no chromium
# nothing can be looked at: a message, and no failure, unless CI=true.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Tells whether one of some commands is there.
has() {
  for name in "$@"; do
    if command -v "$name" >/dev/null; then return; fi
  done
  return 1
}

get() {
  if [ "$(id -u)" != 0 ] || ! has apt-get; then return; fi
  apt-get install -y -q "$1" >/dev/null 2>&1 \
    || { apt-get update -q && apt-get install -y -q "$1"; } >/dev/null 2>&1 \
    || echo "make check: apt-get could not install $1"
}

give_up() {
  if [ "${CI:-}" = true ]; then
    echo "make check: failed ($1)" >&2
    exit 1
  fi
  echo "make check: SKIPPED, no page was looked at ($1)"
  echo "Install it, for instance: apt-get install chromium nodejs npm"
  exit 0
}

has node || get nodejs
has npm || get npm
has chromium chromium-browser google-chrome || get chromium
has node || give_up "no node on the PATH"
has npm || give_up "no npm on the PATH"
has chromium chromium-browser google-chrome || give_up "no chromium on the PATH"

"$here/install"

status=0
node "$here/main.mjs" "$1" || status=$?
"$2" -m pytest -q -n 0 -p no:cacheprovider "$1/tests/test_check.py" \
  "$1/tests/test_workflows.py" || status=1
exit "$status"
