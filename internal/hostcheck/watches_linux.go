package hostcheck

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/ledger/finding"
)

// enoughWatches is how many folders a source may need to watch, one watch each. Systems usually allow more.
const enoughWatches = 8192

// watches examines whether folders can be watched.
func watches() []finding.Finding {
	const why = "new files in a watched folder are found by looking through it now and then, and not at once"
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	switch {
	case errors.Is(err, unix.EMFILE):
		return []finding.Finding{finding.Warning("inotify", "this user has no inotify instance left", why,
			"sysctl fs.inotify.max_user_instances=512, and a file in /etc/sysctl.d to keep it")}
	case err != nil:
		return []finding.Finding{finding.Warning("inotify", "inotify does not work here: "+err.Error(), why,
			"see whether the sandbox or container allows it")}
	}
	unix.Close(fd)
	most, err := limit("max_user_watches")
	if err != nil {
		return []finding.Finding{finding.Fine("inotify", "works; its limits are not visible here")}
	}
	what := fmt.Sprintf("works; this user may watch %d folders", most)
	if most < enoughWatches {
		return []finding.Finding{finding.Warning("inotify", what, "a tree with more folders is not watched as a whole: "+why,
			"sysctl fs.inotify.max_user_watches=524288, and a file in /etc/sysctl.d to keep it")}
	}
	return []finding.Finding{finding.Fine("inotify", what)}
}

// limit reads a limit of inotify.
func limit(name string) (int, error) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/" + name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
