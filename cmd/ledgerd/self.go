package main

import "github.com/spf13/cobra"

// selfCommand holds the commands that are about the program and not about a ledger.
func (a *app) selfCommand() *cobra.Command {
	return group(groupSetUp, "self", "Version, manual pages, shell completion, and a benchmark of this machine",
		a.versionCommand(), a.manCommand(), a.completionCommand(), a.benchCommand())
}
