// Package pluginproc is one plugin process, seen from its host: start, handshake, the stream
// of items, stop. It knows the protocol (sdk/wire) and go-plugin, and nothing of ledgers.
//
// A process lives once: Start, Describe, Configure, Open, then Send and results until it is
// stopped, killed, or dies. Whoever wants another one starts another one.
//
//	p, err := pluginproc.Start(ctx, pluginproc.Spec{Path: "/opt/p/ledgerd-plugin-thumbs"})
//	…
//	problems, err := p.Configure(ctx, &wire.ConfigureRequest{Config: config})
//	err = p.Open(pluginproc.Events{Results: settle})
//	n, err := p.WaitCredits(ctx)
//	err = p.Send(items[:min(n, len(items))])
//	<-p.Done(); err = p.Err()
//
// The plugin is not trusted to behave. Whatever it does, every call here returns within its
// bound, the host's memory stays bounded, and the process and its children are gone at the
// end: it has a process group of its own, its output is read to the end by us whatever it
// writes, its environment is an allow-list, its socket lies in a directory that only we may
// enter. Where go-plugin trusts the plugin (it parses what the plugin logs, waits for ever
// for one that is frozen, hands down the environment) it is kept from doing so: it is given
// the handshake line and the connection, and no more.
//
// # Goroutines of a process
//
// One starts the process and waits for it, on an OS thread of its own (see run); two read
// stdout and stderr; one looks at what it takes, if that has limits; after Open one writes to and one reads from the stream. The rest are
// go-plugin's and gRPC's. All end when Done is closed, or within Stop's bound after it.
package pluginproc
