package conformance

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// versions are the versions of the protocol that a newer host may offer.
const versions = "1,99"

// answerBound is the time for a server to answer a new client, or to turn it away.
const answerBound = time.Second

// raw is a plugin that was started without package pluginproc, up to the handshake. So it can be offered what
// pluginproc never offers.
type raw struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	stderr capped
	dir    string
	line   string // the first on stdout
}

// startRaw starts a plugin and reads its handshake. The client's certificate is PEM, "" for none.
func (t Target) startRaw(ctx context.Context, cert string) (*raw, error) {
	made, err := os.MkdirTemp(t.Spec.SocketDir, "ledgerd-check")
	if err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(made)
	if err != nil {
		_ = os.RemoveAll(made)
		return nil, err
	}
	p := &raw{cmd: t.command(ctx), dir: dir}
	p.cmd.Env = append(t.Spec.Environ(), wire.CookieKey+"="+wire.CookieValue,
		"PLUGIN_PROTOCOL_VERSIONS="+versions, "PLUGIN_UNIX_SOCKET_DIR="+dir, "PLUGIN_MIN_PORT=10000", "PLUGIN_MAX_PORT=25000")
	if cert != "" {
		p.cmd.Env = append(p.cmd.Env, wire.ClientKey+"="+cert)
	}
	p.cmd.Stderr = &p.stderr
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	p.stdout = bufio.NewReaderSize(stdout, lineMax)
	late := time.AfterFunc(t.callTime(), func() { _ = p.cmd.Cancel() })
	line, err := p.stdout.ReadSlice('\n')
	p.line = strings.TrimSuffix(string(line), "\n")
	inTime := late.Stop()
	if err != nil {
		early := p.early()
		p.kill()
		if early != "" {
			text := p.stderr.text.String()
			return nil, differs("a plugin that starts", "see the cause on its stderr", "%w", &pluginproc.StartError{
				Path: t.Spec.Path, Step: pluginproc.StepHandshake, Problem: early, Stderr: text[max(0, len(text)-1000):]})
		}
		if !inTime {
			return nil, fmt.Errorf("the line of the handshake: %w", noAnswer(t.callTime()))
		}
		return nil, fmt.Errorf("it writes %q to stdout and no line%s", cut(p.line), p.stderr.quoted())
	}
	return p, nil
}

// early describes a process that ended before the handshake; it is "" if the process has written something, or goes on.
func (p *raw) early() string {
	if p.line != "" {
		return ""
	}
	late := time.AfterFunc(answerBound, func() { _ = p.cmd.Cancel() })
	_ = p.cmd.Wait() // how it ended is in ProcessState
	if !late.Stop() || p.cmd.ProcessState == nil || !p.cmd.ProcessState.Exited() {
		return ""
	}
	text := fmt.Sprintf("it exited with %d before the handshake", p.cmd.ProcessState.ExitCode())
	if cause := pluginproc.Cause(p.stderr.text.String()); cause != "" {
		text += ": " + cause
	}
	return text
}

const (
	settingsFrame = 4 // of HTTP/2; a server begins with it

	lineMax     = 16 << 10        // bytes of a handshake: a certificate is about 1 KiB
	cappedMax   = 64 << 10        // bytes that are kept of an output
	byHandBound = 2 * time.Second // for a program to print that it is a plugin
)

// command is the program, not started yet. At the end of ctx its process group is killed.
func (t Target) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, t.Spec.Path, t.Spec.Args...)
	cmd.Dir = t.Spec.Dir
	cmd.SysProcAttr = pluginproc.OwnGroup()
	cmd.Cancel = func() error { return pluginproc.KillGroup(cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // a child may have inherited its outputs
	return cmd
}

// capped keeps the first cappedMax bytes of an output.
type capped struct{ text bytes.Buffer }

func (c *capped) Write(p []byte) (int, error) {
	c.text.Write(p[:min(len(p), cappedMax-c.text.Len())])
	return len(p), nil
}

// quoted is the end of the output, as further lines of an error; "" if there is no output.
func (c *capped) quoted() string {
	if c.text.Len() == 0 {
		return ""
	}
	return "\n  stderr: " + tail(c.text.String())
}

func cut(text string) string { return text[:min(len(text), 200)] }

// hangUp closes stdin and returns what else the plugin writes to stdout until it ends. After bound it kills the plugin.
func (p *raw) hangUp(bound time.Duration) string {
	_ = p.stdin.Close() // it is there until kill
	late := time.AfterFunc(bound, func() { _ = p.cmd.Cancel() })
	defer late.Stop()
	more, _ := io.ReadAll(io.LimitReader(p.stdout, 1000)) // an error is an end, too
	return string(more)
}

func (p *raw) kill() {
	_ = p.cmd.Cancel() // it may have ended
	_ = p.cmd.Wait()   // by a signal
	_ = os.RemoveAll(p.dir)
}

func serverCertificate(field string) (*x509.Certificate, error) {
	der, err := base64.RawStdEncoding.DecodeString(field)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// plainly connects without TLS and returns nil if the server speaks.
func plainly(ctx context.Context, path string, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return greet(ctx, conn)
}

// dial connects as a client with a certificate, or none, and returns nil if the server speaks
// to it: the first message of HTTP/2 is the server's.
func dial(ctx context.Context, path string, server *x509.Certificate, client *wire.Certificate,
	bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", NextProtos: []string{"h2"},
		MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(server)
	if client != nil {
		config.Certificates = []tls.Certificate{client.Pair}
	}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "unix", path)
	if err != nil {
		return err
	}
	return greet(ctx, conn)
}

// greet begins HTTP/2 on a connection, waits for the answer and closes the connection.
func greet(ctx context.Context, conn net.Conn) error {
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline) // of an open connection
	}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		return err
	}
	frame := make([]byte, 9) // the header of the first frame
	if _, err := io.ReadFull(conn, frame); err != nil {
		return err
	}
	if frame[3] != settingsFrame {
		return fmt.Errorf("the answer %x is not of HTTP/2", frame)
	}
	return nil
}
