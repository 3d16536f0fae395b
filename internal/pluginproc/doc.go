// Package pluginproc is one plugin process, seen from its host: start, handshake, the stream of
// items, stop. It knows the protocol (sdk/wire) and go-plugin, and nothing of ledgers.
//
// A process lives once: Start, Describe, Configure, OpenSession, then items and results until it is
// stopped, killed, or dies. A Proc does not restart; start another one. Every host gives a plugin its
// items through a Session: package pluginhost, the checks in conformance, sdktest, and "ledgerd plugin
// run". A Stream is below it, for messages that no session sends.
//
//	p, err := pluginproc.Start(ctx, pluginproc.Spec{Path: "/opt/p/ledgerd-plugin-thumbs"})
//	…
//	problems, err := p.Configure(ctx, &wire.ConfigureRequest{Config: config})
//	s, err := pluginproc.OpenSession(p, pluginproc.SessionConfig[struct{}]{Settle: settle, Stray: warn})
//	s.Add(&pluginproc.Task[struct{}]{Item: item})
//	…
//	p.Stop(ctx, grace); err = p.Err()
//
// The plugin is not trusted to behave. Every call here returns within its bound all the same,
// the host's memory stays bounded, and the process and its children are gone at the end. It has a
// process group of its own, and its output is always read to the end. Its environment is an
// allow-list, and its socket lies in a directory that only we may enter. go-plugin trusts the
// plugin: it parses the plugin's output, waits for ever for a frozen plugin, and passes on the
// environment. So go-plugin gets only the handshake line and the connection.
//
// # Goroutines of a process
//
// One goroutine starts the process and waits for it, on an OS thread of its own (see run). Two read stdout and stderr.
// One measures the memory and counts the processes, if they have limits. After OpenSession one writes to the stream,
// one reads from it, and one waits for credits. The others belong to go-plugin and gRPC. All end when Done is closed,
// or within Stop's bound after it.
package pluginproc
