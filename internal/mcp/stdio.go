package mcp

import (
	"context"
	"errors"
	"io"
	"time"

	protocol "github.com/modelcontextprotocol/go-sdk/mcp"
)

// mostLine bounds a message of an agent, in bytes.
const mostLine = 4 << 20

// endTime is for giving back what an agent that has ended had not begun.
const endTime = 10 * time.Second

// Serve serves one agent over a pair of streams until the agent closes its own, or ctx ends. Then what the agent has
// claimed ahead and not begun goes back.
func Serve(ctx context.Context, api *Caller, agent string, in io.ReadCloser, out io.WriteCloser) error {
	return serve(ctx, api, agent, &protocol.IOTransport{Reader: in, Writer: out, MaxLineLength: mostLine})
}

func serve(ctx context.Context, api *Caller, agent string, over protocol.Transport) error {
	me, err := api.Me(ctx)
	if err != nil {
		return err
	}
	d := newDesk(agent)
	s := newServer(me, func(context.Context) *visit { return &visit{desk: d, api: api} })
	err = s.Run(ctx, over)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	(&visit{desk: d, api: api}).giveBack(closing)
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// clientOf is the program of an agent, as it names itself.
func clientOf(s *protocol.ServerSession) string {
	if s == nil || s.InitializeParams() == nil || s.InitializeParams().ClientInfo == nil {
		return ""
	}
	c := s.InitializeParams().ClientInfo
	return c.Name + "@" + c.Version
}
