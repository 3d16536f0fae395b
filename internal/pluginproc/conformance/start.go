package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// checkNoCookie starts the plugin as a person would, without the cookie: it must explain itself on stderr and exit
// with 1.
func checkNoCookie(ctx context.Context, t Target) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.bound(byHandBound), fmt.Errorf("%v have passed", t.bound(byHandBound)))
	defer cancel()
	cmd := t.command(ctx)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var stdout, stderr capped
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("started without the cookie it does not end: %w", context.Cause(ctx))
	case cmd.ProcessState == nil:
		return err
	case cmd.ProcessState.ExitCode() != 1:
		return fmt.Errorf("started without the cookie it exits with %d, not 1", cmd.ProcessState.ExitCode())
	case stdout.text.Len() > 0:
		return fmt.Errorf("started without the cookie it writes %q to stdout", tail(stdout.text.String()))
	case stderr.text.Len() == 0:
		return errors.New("started without the cookie it prints nothing on stderr")
	}
	return nil
}

// checkHandshake checks the line on stdout that a started plugin writes, its socket, and that no other line follows.
func checkHandshake(ctx context.Context, t Target) error {
	client := ""
	if !t.Spec.NoMTLS {
		ours, err := wire.NewCertificate()
		if err != nil {
			return err
		}
		client = ours.PEM
	}
	p, err := t.startRaw(ctx, client)
	if err != nil {
		return err
	}
	defer p.kill()
	fields := strings.Split(p.line, "|")
	if len(fields) < 5 || len(fields) > 6 || fields[0] != "1" || fields[2] != "unix" || fields[4] != "grpc" {
		return fmt.Errorf("it writes %q", p.line)
	}
	if fields[1] != fmt.Sprint(wire.Version) {
		return differs(fmt.Sprintf("protocol %d, the highest that both sides of %q speak", wire.Version, versions),
			"choose among PLUGIN_PROTOCOL_VERSIONS", "it chooses %s", fields[1])
	}
	if err := p.checkSocket(fields[3]); err != nil {
		return err
	}
	if more := p.hangUp(t.bound(orphanBound)); more != "" {
		return fmt.Errorf("after the handshake it writes %q to stdout", more)
	}
	return nil
}

// checkSocket checks that the path in the handshake is a socket in the directory that the plugin was given.
func (p *raw) checkSocket(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("there is no socket at %s: %w", path, err)
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("%s is not a socket", path)
	}
	if rel, err := filepath.Rel(p.dir, path); err != nil || !filepath.IsLocal(rel) {
		return fmt.Errorf("its socket is %s, which is not in PLUGIN_UNIX_SOCKET_DIR (%s)", path, p.dir)
	}
	return nil
}

// checkNoTLS starts the plugin without a certificate of a client: it must serve without TLS.
func checkNoTLS(ctx context.Context, t Target) error {
	p, err := t.startRaw(ctx, "")
	if err != nil {
		return err
	}
	defer p.kill()
	fields := strings.Split(p.line, "|")
	if len(fields) == 6 && fields[5] != "" {
		return differs("an empty last field of the handshake", "", "it writes %q", p.line)
	}
	if len(fields) < 5 {
		return fmt.Errorf("it writes %q", p.line)
	}
	return plainly(ctx, fields[3], t.bound(answerBound))
}

// checkTLS checks that a plugin with a certificate lets in the client of that certificate and no other.
func checkTLS(ctx context.Context, t Target) error {
	ours, err := wire.NewCertificate()
	if err != nil {
		return err
	}
	theirs, err := wire.NewCertificate()
	if err != nil {
		return err
	}
	p, err := t.startRaw(ctx, ours.PEM)
	if err != nil {
		return err
	}
	defer p.kill()
	fields := strings.Split(p.line, "|")
	if len(fields) < 6 || fields[5] == "" {
		return differs("its certificate in the last field of the handshake", "write it there, DER in base64 without padding",
			"it writes %q", p.line)
	}
	server, err := serverCertificate(fields[5])
	if err != nil {
		return differs("a certificate in the last field of the handshake, DER in base64 without padding", "", "%v", err)
	}
	if err := dial(ctx, fields[3], server, ours, t.bound(answerBound)); err != nil {
		return fmt.Errorf("the right client is not let in: %w", err)
	}
	for who, cert := range map[string]*wire.Certificate{"a client with another certificate": theirs,
		"a client without a certificate": nil} {
		if dial(ctx, fields[3], server, cert, t.bound(answerBound)) == nil {
			return fmt.Errorf("%s is let in", who)
		}
	}
	return nil
}
