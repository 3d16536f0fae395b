package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// askTime bounds the answer of a daemon at its port.
const askTime = 3 * time.Second

// Port examines the address, host:port, at which a daemon of this machine serves /livez; "" is none. It is fine if the
// port is free or a daemon answers there.
func Port(ctx context.Context, address string) (all []finding.Finding) {
	if address == "" {
		return []finding.Finding{finding.Fine("port", "serve listens on none")}
	}
	if !access.IsLoopback(address) {
		all = append(all, finding.Warning("port", address+" is not a loopback address",
			"whoever reaches it reads, without a password, the names of kinds and sources and how they are",
			`listen = "127.0.0.1:7373" in the config, or a firewall or proxy before it`))
	}
	at, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case err == nil:
		at.Close()
		return append(all, finding.Fine("port", address+" is free"))
	case !errors.Is(err, ErrInUse):
		return append(all, finding.Warning("port", fmt.Sprintf("cannot listen on %s: %v", address, err),
			"ledgerd serve does not start here", "name an address of this machine: listen in the config"))
	case answers(ctx, address):
		return append(all, finding.Fine("port", "a daemon answers on "+address))
	}
	return append(all, finding.Warning("port", address+" is in use, and no daemon that is well answers there",
		"ledgerd serve does not start here; or one that hangs has it",
		`see who has it (ss -ltnp), or name another one: listen = "127.0.0.1:7374"`))
}

// answers reports whether a daemon answers ok at /livez of an address.
func answers(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/livez", nil)
	if err != nil {
		return false
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // also no proxy
	res, err := client.Do(request)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 16))
	return err == nil && res.StatusCode == http.StatusOK && string(text) == "ok\n"
}
