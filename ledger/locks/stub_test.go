package locks_test

import "context"

func committer(ctx context.Context, p *place, args []string) error { return nil }
func contender(ctx context.Context, p *place, args []string) error { return nil }
