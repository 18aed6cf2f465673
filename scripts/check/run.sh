#!/usr/bin/env bash
# Checks the built site. If all checks run, the checks themselves are tested
# then, on planted faults; but not with CI=true, where `make test` does it.
# Usage: run.sh ROOT PYTHON [CHECK ...]: those of main.mjs, or all
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

status=0
node "$here/main.mjs" "$@" || status=$?
if [ "${CI:-}" != true ] && [ $# -eq 2 ]; then
  "$2" -m pytest -q -n 0 -p no:cacheprovider "$1/tests/site/checks/test_check.py" \
    "$1/tests/site/tools/test_workflows.py" || status=1
fi
exit "$status"
