#!/usr/bin/env bash
# Checks the built site. Usage: run.sh ROOT PYTHON [CHECK ...]: those of main.mjs,
# or all. SINCE and SEED choose the pages that are opened: see choice.mjs.
#
# What is missing is installed, where that is allowed: see `install`. Where
# there is no chromium nothing can be looked at: a message, and no failure,
# unless CI=true.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Tells whether one of some commands is there.
has() {
  for name in "$@"; do
    if command -v "$name" >/dev/null; then return; fi
  done
  return 1
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

browsers="chromium chromium-browser google-chrome"
if has $browsers; then "$here/install"; else "$here/install" chromium; fi
has npm || give_up "no npm on the PATH"
has $browsers || give_up "no chromium on the PATH"

exec node "$here/main.mjs" "$@"
