// Command ledgerd-plugin-photo is the photo plugin as a program of its own.
package main

import (
	"github.com/ledgerd/ledgerd/plugins/photo"
	"github.com/ledgerd/ledgerd/sdk"
)

func main() { sdk.Main(photo.Plugin()) }
