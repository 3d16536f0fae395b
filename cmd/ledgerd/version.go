package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/schema"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// version is set by the linker; see programVersion for builds without.
var version string

// programVersion is the version of this build: what the linker set, else what the module says.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: arguments(0, 0),
		Annotations: map[string]string{withoutConfig: "yes"},
		Long:        `Prints the version. With -o json: {"version","schema","protocol","go","platform"}.`,
		RunE: func(*cobra.Command, []string) error {
			v := struct {
				Version  string `json:"version"`
				Schema   int    `json:"schema"`
				Protocol int    `json:"protocol"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{programVersion(), schema.Version, wire.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return one(a, v, fmt.Sprintf("ledgerd %s   schema %d   plugin protocol %d   %s %s", v.Version, v.Schema, v.Protocol, v.Go, v.Platform))
		},
	}
}
