// Package wait waits, but not longer than a context.
package wait

import (
	"context"
	"time"
)

// For waits for d, or until ctx ends. It returns the error of ctx.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}
