// Command ledgerd-plugin-feed is the feed plugin as a program of its own.
package main

import (
	"github.com/ledgerd/ledgerd/plugins/feed"
	"github.com/ledgerd/ledgerd/sdk"
)

func main() { sdk.Main(feed.Plugin()) }
