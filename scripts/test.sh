#!/usr/bin/env bash
# What `make check`, `make test-cluster` and `make test` run, the cheap first; the first failure ends it.
# Usage: scripts/test.sh check|cluster|all
set -euo pipefail
cd "$(dirname "$0")/.."
bin="$PWD/.venv/bin" testbed=testbed/tidegate-testbed
cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
began=$SECONDS building="" ours=""

say() { printf '\n[%4d s] %s\n' "$((SECONDS - began))" "$*"; }
pytest() { "$bin/pytest" "$@" </dev/null; }

style() {
  say "style, types and the laws of the architecture"
  "$bin/ruff" check .
  "$bin/ruff" format --check .
  "$bin/mypy"
  "$bin/lint-imports" --no-cache | sed -n '/^Contracts$/,$p'
}

prepare() { # the long builds, while the processors would else wait for single-threaded tests
  "$testbed" packages
  "$testbed" build
  "$bin/tidegate" images --build-only
}

finish() {
  local code=$?
  if [ -n "$building" ] && kill -0 "$building" 2>/dev/null; then
    kill -- "-$building" 2>/dev/null || true # a process group of its own
  fi
  if [ -n "$ours" ]; then "$testbed" down || code=1; fi
  say "$([ "$code" = 0 ] && echo passed || echo "failed with code $code")"
  exit "$code"
}

up() {
  if ! "$testbed" status >/dev/null 2>&1; then
    [ "${1:-}" = keep ] || ours=1
    "$testbed" up
  fi
  "$bin/tidegate" images
}

require_root() {
  [ "$(id -u)" = 0 ] || { echo "test: the cluster tests start a Kubernetes and need root; \`make check\` does not" >&2; exit 1; }
}

case "${1:-}" in
  check)
    style
    say "quick tests"
    pytest -q tests --ignore=tests/cluster --ignore=tests/testbed -m "not model"
    ;;
  cluster)
    require_root
    up keep
    pytest tests/cluster
    ;;
  all)
    require_root
    trap finish EXIT
    mkdir -p "$cache"
    log="$cache/prepare.log"
    set -m
    nice -n 19 bash -c "$(declare -f prepare); set -euo pipefail; testbed='$testbed' bin='$bin'; prepare" \
      >"$log" 2>&1 </dev/null &
    building=$!
    set +m
    style
    say "tests without a cluster (programs and images are built meanwhile)"
    pytest tests --ignore=tests/cluster --ignore=tests/testbed
    say "waiting for the builds; the last lines of $log:"
    wait "$building" || { tail -n 30 "$log" >&2; echo "test: the builds failed" >&2; exit 1; }
    building=""
    tail -n 5 "$log"
    say "tests on a real Kubernetes"
    up
    pytest tests/cluster
    say "tests of the testbed itself"
    pytest tests/testbed
    ;;
  *)
    echo "usage: $0 check|cluster|all" >&2
    exit 2
    ;;
esac
