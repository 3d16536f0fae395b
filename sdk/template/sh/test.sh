#!/bin/sh
# Tests sample.sh: sh test.sh
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

printf 'one\ntwo three\n' >"$tmp/a.txt"
got=$(./sample.sh "$tmp/a.txt")
[ "$got" = '{"lines":2,"words":3}' ] || { echo "counts: $got"; exit 1; }

code=0
MAX_BYTES=1 ./sample.sh "$tmp/a.txt" 2>/dev/null || code=$?
[ "$code" = 65 ] || { echo "too large: exit $code, want 65"; exit 1; }

code=0
./sample.sh "$tmp/none.txt" 2>/dev/null || code=$?
[ "$code" = 1 ] || { echo "missing: exit $code, want 1"; exit 1; }
echo ok
