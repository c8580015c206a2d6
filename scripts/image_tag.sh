#!/bin/sh
# Print the tag of an image: a digest of everything that goes into it, so that a change, and only a change, rolls pods.
# Usage: scripts/image_tag.sh engine|operator
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
  engine) folder=engine_image package="engine_image/tidegate_engine engine_image/native" more=requirements/ziglang.txt ;;
  operator) folder=operator package=operator/tidegate_operator ;;
  *) echo "usage: $0 engine|operator" >&2; exit 2 ;;
esac
{
  # shellcheck disable=SC2086
  find $package -type f ! -name '*.pyc' ! -name '*.so'
  echo "$folder/Dockerfile"
  printf '%s\n' "requirements/$1.txt" ${more:-}
} | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-12
