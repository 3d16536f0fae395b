#!/bin/sh
# Publishes another article on the bakery's blog, and changes an old one.
set -eu
sed -i.bak -e 's/Why rolls are round/Why rolls are round after all/' \
	-e 's|</title>$|&<item><guid>salt</guid><title>Salt</title><link>https://bakery.example/salt</link></item>|' "${1:-site}/bakery.xml"
rm "${1:-site}/bakery.xml.bak"
