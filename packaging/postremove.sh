#!/bin/sh
# deb: remove leaves the config and the ledger, purge takes both; rpm and apk leave the ledger.
set -e

if [ "$1" = purge ]; then
	rm -rf /var/lib/ledgerd
	rmdir --ignore-fail-on-non-empty /etc/ledgerd 2>/dev/null || true
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
