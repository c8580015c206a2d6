#!/bin/sh
# Print the tag of an image: a digest of everything that goes into it, so that a change, and only a change, rolls pods.
# Usage: scripts/image_tag.sh engine|operator
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
  engine) folder=engine_image package=engine_image/tidegate_engine ;;
  operator) folder=operator package=operator/tidegate_operator ;;
  *) echo "usage: $0 engine|operator" >&2; exit 2 ;;
esac
{
  find "$package" -type f ! -name '*.pyc'
  echo "$folder/Dockerfile"
  echo "requirements/$1.txt"
} | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-12
