//go:build !chaos

package main

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// instrument gives a chaos build the chance to stand before the store.
func instrument(s ledger.Store) ledger.Store { return s }

// observed tells a chaos build how attempts ended.
func observed(worker.Event) {}
