#!/bin/sh
# Makes the folder clips with three small videos, one of them broken.
set -eu
mkdir -p clips
for name in street harbour; do
	ffmpeg -nostdin -v error -y -f lavfi -i testsrc=duration=2:size=320x240:rate=25 -c:v mjpeg "clips/$name.avi"
done
head -c 2000 clips/street.avi | tail -c 1000 > clips/broken.avi
