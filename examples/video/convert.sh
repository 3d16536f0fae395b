#!/bin/sh
# Converts the video $1 to MP4 with $3 lines, as $2, and prints its progress. The new file gets its
# name when it is complete, so no program sees a part of it.
set -eu
mkdir -p -- "$(dirname -- "$2")"
frames=$(ffprobe -v error -select_streams v:0 -count_packets -show_entries stream=nb_read_packets -of csv=p=0 -- "$1") || exit 65
rm -f -- "$2".part.* # of attempts that were killed
part=$2.part.$LEDGERD_ATTEMPT
{ ffmpeg -nostdin -v error -y -i "$1" -vf "scale=-2:$3" -progress pipe:1 -f mp4 "$part" || echo "failed=$?"; } |
while IFS='=' read -r name value; do
	case $name in
	frame) echo "progress $value/$frames frames" ;;
	failed) exit "$value" ;;
	esac
done
mv -- "$part" "$2"
echo "{\"frames\": $frames, \"bytes\": $(wc -c < "$2")}"
