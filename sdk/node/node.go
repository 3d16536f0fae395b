// Package node holds the SDK for plugins in JavaScript: the files beside this one. See README.md. Package template
// copies them into the folder of a new plugin: a plugin takes the SDK along.
package node

import "embed"

//go:generate cp ../../LICENSE .
//go:generate sh -c "{ echo '// make generate: plugin.proto as text'; echo 'module.exports = `'; sed 's/`/\\\\`/g' ../wire/plugin.proto; echo '`'; } >proto.js"

// Files is the SDK, without its tests. package.json and package-lock.json have the exact versions of the packages that
// it needs; .npmrc has the settings of npm for its folder.
//
//go:embed *.js index.d.ts README.md package.json package-lock.json .npmrc
var Files embed.FS
