// Command ledgerd-plugin-filecsv is the plugin filecsv as a program of its own.
package main

import (
	"github.com/ledgerd/ledgerd/plugins/filecsv"
	"github.com/ledgerd/ledgerd/sdk"
)

func main() { sdk.Main(filecsv.Plugin()) }
