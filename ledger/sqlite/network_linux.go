package sqlite

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// networkFS returns the name of the file system of a folder if several machines, or a machine and its guests, may use
// it at the same time; else "".
func networkFS(dir string) (string, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return "", &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	mounts, err := os.Open(mountTable)
	if err != nil { // without the table the names are less precise
		return networkName(uint32(fs.Type), ""), nil
	}
	defer mounts.Close()
	return networkName(uint32(fs.Type), mountedAs(mounts, st.Dev)), nil
}

const mountTable = "/proc/self/mountinfo"

// mountPoint reports whether something is mounted at a path. The path is absolute and without symbolic links.
func mountPoint(path string) bool {
	mounts, err := os.Open(mountTable)
	if err != nil {
		return false
	}
	defer mounts.Close()
	return mountedAt(mounts, path)
}

// mountedAt reports whether a path is in a table in the format of /proc/self/mountinfo: the fifth field is the place,
// with space, tab, line feed and backslash in octal.
func mountedAt(mountinfo io.Reader, path string) bool {
	path = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(path)
	for lines := bufio.NewScanner(mountinfo); lines.Scan(); {
		if f := strings.Fields(lines.Text()); len(f) > 4 && f[4] == path {
			return true
		}
	}
	return false
}

// networkTypes are the magic numbers of statfs(2).
var networkTypes = map[uint32]string{
	0x6969: "nfs", 0x517B: "smb", 0xFF534D42: "cifs", 0xFE534D42: "smb2", 0x01021997: "9p", 0x00C36400: "ceph",
	0x5346414F: "afs", 0x6B414653: "afs", 0x73757245: "coda", 0x564C: "ncp", 0x0BD00BD0: "lustre", 0x47504653: "gpfs",
	0x7461636F: "ocfs2", 0x01161970: "gfs2", 0x19830326: "beegfs", 0x786F4256: "vboxsf", 0xBACBACBC: "vmhgfs",
	0x7C7C6673: "prl_fs", 0xAAD7AAEA: "panfs", 0xBEEFDEAD: "snfs", 0x20030528: "orangefs", 0x61636673: "acfs",
	0x013111A8: "ibrix",
}

const fuseType = 0x65735546

// localFUSE are file systems in user space on a disk of this machine.
var localFUSE = map[string]bool{"fuseblk": true, "fuse.fuse-overlayfs": true, "fuse.gocryptfs": true,
	"fuse.encfs": true}

// networkName returns the name by the type from statfs and the name in the table of mounts; mounted is "" if there is
// none.
func networkName(magic uint32, mounted string) string {
	name := networkTypes[magic]
	if magic == fuseType && !localFUSE[mounted] {
		name = "fuse"
	}
	if name != "" && mounted != "" {
		return mounted
	}
	return name
}

// mountedAs returns the file system of a device from a table in the format of /proc/self/mountinfo: the third field is
// major:minor, the name follows a field "-".
func mountedAs(mountinfo io.Reader, dev uint64) string {
	want := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for lines := bufio.NewScanner(mountinfo); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 3 || f[2] != want {
			continue
		}
		for i, v := range f[:len(f)-1] {
			if v == "-" {
				return f[i+1]
			}
		}
	}
	return ""
}
