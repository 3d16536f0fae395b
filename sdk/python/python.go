// Package python holds the SDK for plugins in Python: the folder beside this file. See README.md. Package template
// copies it into the folder of a new plugin.
package python

import "embed"

//go:generate go test -count=1 -run TestDescriptor . -update

// Files is the SDK, without its tests.
//
//go:embed ledgerd_plugin/*.py ledgerd_plugin/plugin.binpb
var Files embed.FS
