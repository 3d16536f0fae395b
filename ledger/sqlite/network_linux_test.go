package sqlite

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const mounts = `22 28 0:21 / /proc rw,nosuid - proc proc rw
31 28 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 31 0:45 / /mnt/nas rw,relatime shared:9 master:2 - nfs4 nas:/export rw,vers=4.2
41 31 0:46 / /mnt/ssh rw - fuse.sshfs ann@host: rw
42 31 0:47 / /media/stick rw - fuseblk /dev/sdb1 rw
short 1
`

func TestNetworkFS(t *testing.T) {
	for name, tt := range map[string]struct {
		magic uint32
		dev   uint64 // 0: not in the table
		want  string
	}{
		"ext4":                   {0xEF53, unix.Mkdev(254, 0), ""},
		"nfs":                    {0x6969, unix.Mkdev(0, 45), "nfs4"},
		"nfs without its mount":  {0x6969, 0, "nfs"},
		"cifs":                   {0xFF534D42, 0, "cifs"},
		"smb2":                   {0xFE534D42, 0, "smb2"},
		"9p":                     {0x01021997, 0, "9p"},
		"sshfs":                  {0x65735546, unix.Mkdev(0, 46), "fuse.sshfs"},
		"fuse without its mount": {0x65735546, 0, "fuse"},
		"a disk by fuse":         {0x65735546, unix.Mkdev(0, 47), ""},
		"tmpfs":                  {0x01021994, 0, ""},
	} {
		mounted := ""
		if tt.dev != 0 {
			if mounted = mountedAs(strings.NewReader(mounts), tt.dev); mounted == "" {
				t.Errorf("%s: no mount", name)
			}
		}
		if got := networkName(tt.magic, mounted); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	if got, err := networkFS(t.TempDir()); got != "" || err != nil {
		t.Errorf("the tests' own folder is on %q, %v", got, err)
	}
}

func TestMountedAt(t *testing.T) {
	const table = mounts + `50 31 254:0 /srv/a.db /data/led\040ger.db rw,relatime - ext4 /dev/vda rw
`
	for path, want := range map[string]bool{"/": true, "/data/led ger.db": true, "/data/led": false, "/data": false} {
		if got := mountedAt(strings.NewReader(table), path); got != want {
			t.Errorf("%s: %v, want %v", path, got, want)
		}
	}
	if mountPoint(t.TempDir()) || !mountPoint("/proc") {
		t.Error("the table of mounts is not read")
	}
}
