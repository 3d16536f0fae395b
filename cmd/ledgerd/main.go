// Command ledgerd keeps ledgers of work and works them with plugins; see `ledgerd --help`. The command line is
// package internal/cli; here are the plugins that are linked into the program.
package main

import (
	_ "time/tzdata" // for systems and images that have no zone data

	"github.com/ledgerd/ledgerd/internal/cli"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/initproc"
	"github.com/ledgerd/ledgerd/plugins/exec"
	"github.com/ledgerd/ledgerd/plugins/feed"
	"github.com/ledgerd/ledgerd/plugins/filecsv"
	"github.com/ledgerd/ledgerd/plugins/mail"
	"github.com/ledgerd/ledgerd/plugins/photo"
	"github.com/ledgerd/ledgerd/plugins/urlcheck"
	"github.com/ledgerd/ledgerd/sdk"
)

//go:generate sh -c "go run . docs > ../../docs/cli.md"
//go:generate sh -c "go run . docs config > ../../docs/config.md"
//go:generate sh -c "go run . docs api > ../../docs/api.md"
//go:generate go run . docs plugins ../../docs/plugins/reference

var plugins = map[string]func() *sdk.Plugin{
	"exec":     exec.Plugin,
	"feed":     feed.Plugin,
	"filecsv":  filecsv.Plugin,
	"mail":     mail.Plugin,
	"photo":    photo.Plugin,
	"urlcheck": urlcheck.Plugin,
}

func main() {
	if initproc.Needed() {
		initproc.Main()
	}
	cli.Main(app.Program{Plugins: plugins})
}
