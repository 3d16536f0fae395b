// Package python holds the SDK for plugins in Python; package template copies it into a new plugin. See README.md.
package python

import "embed"

//go:generate go test -count=1 -run TestDescriptor . -update

//go:embed ledgerd_plugin/*.py ledgerd_plugin/plugin.binpb
var Files embed.FS // the SDK, without its tests
