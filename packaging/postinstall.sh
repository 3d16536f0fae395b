#!/bin/sh
# deb: configure [old version]; rpm: 1 for the first installation, 2 for an upgrade; apk: the version, and the old one.
set -e

# The user of the service. It stays when the package is removed: files may still belong to it.
if ! id -u ledgerd >/dev/null 2>&1; then
	if [ -x /usr/sbin/useradd ]; then
		/usr/sbin/useradd --system --user-group --no-create-home --shell /usr/sbin/nologin --home-dir /var/lib/ledgerd ledgerd
	else
		addgroup -S ledgerd
		adduser -S -D -H -h /var/lib/ledgerd -s /sbin/nologin -G ledgerd ledgerd
	fi
fi
mkdir -p /var/lib/ledgerd
chown ledgerd:ledgerd /var/lib/ledgerd
chmod 0700 /var/lib/ledgerd
# An administrator may have removed the config, or given it another mode.
if [ -e /etc/ledgerd/ledgerd.toml ] && [ "$(stat -c %G:%a /etc/ledgerd/ledgerd.toml)" = root:640 ]; then
	chgrp ledgerd /etc/ledgerd/ledgerd.toml
fi

# The installation does not start the service, since its config is still empty. A running service is restarted with the
# new program. If the service does not start, for example before the migration of a ledger on Postgres, the installation
# succeeds all the same.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart ledgerd.service ||
		echo "ledgerd.service does not start: see journalctl -u ledgerd" >&2
fi
