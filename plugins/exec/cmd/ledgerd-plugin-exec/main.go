// Command ledgerd-plugin-exec is the exec plugin as a program of its own.
package main

import (
	"github.com/ledgerd/ledgerd/plugins/exec"
	"github.com/ledgerd/ledgerd/sdk"
)

func main() { sdk.Main(exec.Plugin()) }
