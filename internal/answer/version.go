package answer

import (
	"runtime"

	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/schema"
)

// Version is the version of this program, and of what it can read.
type Version struct {
	Version  string `json:"version"`
	Schema   int    `json:"schema"`
	Protocol int    `json:"protocol"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Commit   string `json:"commit"` // that it was built from, with a + if the tree had changes; "" if it is not known
	Built    string `json:"built"`  // time of that commit
}

// NewVersion makes one. protocol is the version of the plugin protocol.
func NewVersion(protocol int) Version {
	b := version.ThisBuild()
	if b.Dirty {
		b.Commit += "+"
	}
	return Version{version.String(), schema.Version, protocol, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH,
		b.Commit, b.Time}
}
