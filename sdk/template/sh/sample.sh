#!/bin/sh
# Counts the lines and words of one text file. ledgerd runs it for every item, by its plugin exec:
# $1 is the file; the last line on stdout is the result; exit 0 is done, 65 is "no use in trying
# again", anything else is tried again later. The last line on stderr says why.
set -eu

if [ ! -r "$1" ]; then
	echo "cannot read $1" >&2
	exit 1
fi
if [ "$(wc -c <"$1")" -gt "${MAX_BYTES:-100000000}" ]; then
	echo "it is larger than ${MAX_BYTES:-100000000} bytes" >&2
	exit 65
fi
# shellcheck disable=SC2046 # two numbers are wanted
printf '{"lines":%d,"words":%d}\n' $(wc -lw <"$1")
