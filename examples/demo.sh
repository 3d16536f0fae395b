#!/bin/sh
# The main job on a sample inbox: what `make demo` shows. Everything it writes goes into a
# temporary folder; ledgerd is the one in PATH. A command that ends with another exit code than 0 is part
# of the show.
set -eu
cd "$(dirname "$0")/.."

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# The user's variables and config file must not lead the demo to another ledger.
for name in $(env | sed -n 's/^\(LEDGERD_[A-Z_0-9]*\)=.*/\1/p'); do unset "$name"; done
export LEDGERD_CONFIG="$tmp/demo.toml" XDG_DATA_HOME="$tmp/data"
: >"$LEDGERD_CONFIG"
cp -R examples/inbox "$tmp/inbox"
cd "$tmp"

say() { printf '\n# %s\n' "$*"; }
show() {
	printf '$ %s\n' "$*"
	code=0
	"$@" || code=$?
	[ "$code" = 0 ] || printf '(exit %s)\n' "$code"
}

say 'A folder of CSV files, some of them broken. The ledger is made on first use.'
show ledgerd run filecsv inbox --set required=email

say 'What could not be done, and why.'
show ledgerd ls --state dead
show ledgerd show inbox/2026-03-lyon.csv

say 'That one is in another encoding; say so, and it is worked again.'
show ledgerd run filecsv inbox/2026-03-lyon.csv --set required=email --set encoding=windows-1252

say 'In this one a quote was forgotten; repair the file.'
sed 's/"Garnier et fils/"Garnier et fils"/' inbox/2026-04-lyon.csv >repaired
mv repaired inbox/2026-04-lyon.csv

say 'The same command again: what is done stays done, the changed file and the failed ones are tried.'
show ledgerd run filecsv inbox --set required=email

say 'The ledger accounts for every attempt.'
show ledgerd stats
show ledgerd db verify
