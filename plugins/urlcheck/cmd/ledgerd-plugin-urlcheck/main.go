// Command ledgerd-plugin-urlcheck is the urlcheck plugin as a program of its own.
package main

import (
	"github.com/ledgerd/ledgerd/plugins/urlcheck"
	"github.com/ledgerd/ledgerd/sdk"
)

func main() { sdk.Main(urlcheck.Plugin()) }
