// Package node holds the SDK for plugins in JavaScript: the files beside this one. See README.md. Package template
// copies them into the folder of a new plugin: a plugin takes the SDK along.
package node

import "embed"

//go:generate cp ../wire/plugin.proto plugin.proto

// Files is the SDK, without its tests.
//
//go:embed *.js plugin.proto README.md
var Files embed.FS

// Package and Lock are package.json and package-lock.json: which packages the SDK needs, in their exact
// versions.
var (
	//go:embed package.json
	Package []byte
	//go:embed package-lock.json
	Lock []byte
)

// Npmrc is what npm has to know of the folder.
//
//go:embed .npmrc
var Npmrc []byte
