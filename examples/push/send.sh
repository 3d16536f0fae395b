#!/bin/sh
# Sends what is to be sent, on any number of machines at once: ./send.sh, or ./send.sh 0/2 and ./send.sh 1/2
exec ledgerd work --kind mail --drain ${1:+--shard "$1"} \
    --with server="${SMTP:-127.0.0.1:2525}" --with from=expo@example.com --with tls=none --with templates="$PWD/templates"
