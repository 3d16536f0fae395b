#!/bin/sh
# deb: remove, or upgrade VERSION; rpm: 0 for the removal, 1 for an upgrade; apk: the version.
set -e

case "$1" in
upgrade | failed-upgrade | 1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now ledgerd.service ledgerd-drain.timer
	systemctl stop ledgerd-drain.service
fi
