#!/bin/sh
# Installs, upgrades, removes and purges the deb in a clean Debian, and runs the image: test-packages.sh DIST. DIST is the
# folder that `make packages image` fills. It needs root for chroot.
set -eu

# In a mount namespace of its own, the mounts below end with the script.
[ -n "${LEDGERD_MOUNTS-}" ] || LEDGERD_MOUNTS=own exec unshare --mount "$0" "$@"

dist=$(realpath "$1")
deb=$(ls "$dist"/ledgerd_*_amd64.deb)
work=$(mktemp -d)
served=
finish() {
	[ -z "$served" ] || kill "$served" 2>/dev/null || true
	for mounted in "$work/debian/proc" "$work/bundle/rootfs/proc"; do
		! mountpoint -q "$mounted" || umount "$mounted" || return
	done
	rm -rf --one-file-system "$work"
}
trap finish EXIT

step() { echo "=== $*"; }
fail() {
	echo "FAIL: $*" >&2
	exit 1
}
there() { for f; do [ -e "$root$f" ] || fail "$f is missing"; done; }
gone() { for f; do [ ! -e "$root$f" ] || fail "$f was left"; done; }
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@"; }
as_service() { $service "$@"; }

# serves runs a daemon until it answers, and ends it: exit 0. Its argument must be a program, not a function, so that the
# signal reaches the daemon.
serves() {
	"$@" >"$work/log" 2>&1 &
	served=$!
	tries=0
	until curl -fs http://127.0.0.1:7397/readyz >/dev/null; do
		tries=$((tries + 1))
		[ $tries -lt 600 ] && kill -0 $served 2>/dev/null || fail "no answer: $(cat "$work/log")"
		sleep 0.1
	done
	kill -TERM $served
	wait $served || fail "the daemon ended with $?: $(cat "$work/log")"
	served=
}

step "lintian $(basename "$deb")"
lintian --fail-on error --tag-display-limit 0 "$deb" >"$work/lintian" || fail "lintian: $(cat "$work/lintian")"
cut -d " " -f 1,3 "$work/lintian" | sort | uniq -c

step "rpm and apk hold the same program and the same units"
for rpm in "$dist"/ledgerd-*x86_64.rpm; do
	rpm -qp --nosignature -l "$rpm" >"$work/list"
	for f in /usr/bin/ledgerd /usr/lib/systemd/system/ledgerd.service /etc/ledgerd/ledgerd.toml; do
		grep -qx "$f" "$work/list" || fail "$(basename "$rpm") has no $f"
	done
	rpm -qpc --nosignature "$rpm" | grep -qx /etc/ledgerd/ledgerd.toml || fail "the config is not one in $(basename "$rpm")"
done
for apk in "$dist"/ledgerd_*_x86_64.apk; do
	tar -tzf "$apk" 2>/dev/null >"$work/list"
	grep -qx usr/bin/ledgerd "$work/list" || fail "$(basename "$apk") has no usr/bin/ledgerd"
done

step "a clean Debian"
root=$work/debian
service="chroot $root env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 HOME=/var/lib/ledgerd
	LEDGERD_DATA_DIR=/var/lib/ledgerd LEDGERD_LISTEN=127.0.0.1:7397 setpriv --reuid ledgerd --regid ledgerd --clear-groups"
mmdebstrap --quiet --variant=minbase bookworm "$root"
mount --bind /proc "$root/proc"
cp "$deb" "$root/tmp/new.deb"
# The version before: the same files under a smaller number.
dpkg-deb -R "$deb" "$work/old" && sed -i 's/^Version:.*/Version: 0.0.0~a1-1/' "$work/old/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip -z1 -b "$work/old" "$root/tmp/old.deb" >/dev/null

step "install"
inside dpkg -i /tmp/old.deb
there /usr/bin/ledgerd /usr/lib/systemd/system/ledgerd.service /usr/lib/systemd/system/ledgerd-drain.timer \
	/usr/share/bash-completion/completions/ledgerd
[ "$(inside stat -c '%U:%G %a' /etc/ledgerd/ledgerd.toml)" = 'root:ledgerd 640' ] || fail "rights of the config"
[ "$(inside stat -c '%U:%G %a' /var/lib/ledgerd)" = 'ledgerd:ledgerd 700' ] || fail "rights of the data"
! grep -r -e /usr/local -e '^DynamicUser' "$root/usr/lib/systemd/system"/ledgerd* || fail "a unit of the package"
inside ledgerd self version
# Other users cannot read the config of the service, and do not need it.
inside setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/tmp ledgerd config check
as_service ledgerd config check
serves $service ledgerd serve --config /etc/ledgerd/ledgerd.toml
as_service sh -c 'printf "a,b\n1,2\n" >/var/lib/ledgerd/x.csv && ledgerd run filecsv /var/lib/ledgerd/x.csv'

step "upgrade"
echo '# mine' >>"$root/etc/ledgerd/ledgerd.toml"
inside dpkg -i /tmp/new.deb
grep -q '^# mine' "$root/etc/ledgerd/ledgerd.toml" || fail "the changed config was lost"
[ "$(as_service ledgerd ls --state done --count)" -ge 1 ] || fail "the ledger was lost"
[ "$(inside stat -c '%U:%G %a' /etc/ledgerd/ledgerd.toml)" = 'root:ledgerd 640' ] || fail "rights of the config"
serves $service ledgerd serve --config /etc/ledgerd/ledgerd.toml

step "remove"
inside dpkg -r ledgerd
gone /usr/bin/ledgerd /usr/lib/systemd/system/ledgerd.service
there /etc/ledgerd/ledgerd.toml /var/lib/ledgerd/ledger.db

step "purge"
inside dpkg -i /tmp/new.deb
inside dpkg -P ledgerd
gone /etc/ledgerd /var/lib/ledgerd /usr/bin/ledgerd /usr/share/doc/ledgerd
inside grep -q '^ledgerd:' /etc/passwd || fail "the user is gone, and its number may go to another"
umount "$root/proc"

step "image"
mkdir "$work/layout" && tar -xf "$dist/ledgerd-image.tar" -C "$work/layout"
skopeo --override-arch amd64 copy --quiet "oci:$work/layout" "oci:$work/one:test"
size=$(du -sb "$work/one/blobs" | cut -f 1)
[ "$size" -le $((30 << 20)) ] || fail "the image has $size bytes, 30 MiB are allowed"
echo "$size bytes, compressed"
umoci unpack --image "$work/one:test" "$work/bundle" >/dev/null
root=$work/bundle/rootfs
there /etc/ssl/certs/ca-certificates.crt /var/lib/ledgerd /tmp
gone /bin/sh /usr/share/zoneinfo
mkdir "$root/proc" && mount --bind /proc "$root/proc"
image="chroot --userspec=65532:65532 $root /usr/bin/ledgerd"
export HOME=/var/lib/ledgerd LEDGERD_DATA_DIR=/var/lib/ledgerd LEDGERD_LISTEN=127.0.0.1:7397
$image self version
serves $image serve
printf 'a,b\n1,2\n' >"$root/tmp/x.csv"
$image run filecsv /tmp/x.csv --every day --zone Europe/Berlin
[ "$($image ls --kind filecsv --count)" = 1 ] || fail "no plugin worked in the image"
umount "$root/proc"
echo "=== all passed"
