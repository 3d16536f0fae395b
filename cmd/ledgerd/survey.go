package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
)

// surveyed is a plugin that was asked what it is, and what came of that.
type surveyed struct {
	place  pluginhost.Place
	plugin *plugin // nil with an error
	err    error
	took   time.Duration
}

// surveyMost is how many plugins are asked at a time. Each has its deadline, so those that do not answer
// cost one deadline together.
const surveyMost = 64

// survey asks all plugins that are found here what they are, in the order of their names.
func (a *app) survey(ctx context.Context, dirs pluginDirs) ([]surveyed, error) {
	f, err := a.finder(dirs)
	if err != nil {
		return nil, err
	}
	places, err := f.List()
	if err != nil {
		return nil, err
	}
	all := make([]surveyed, len(places))
	var asking errgroup.Group
	asking.SetLimit(surveyMost)
	for i, place := range places {
		asking.Go(func() error {
			began := time.Now()
			all[i].place = place
			all[i].plugin, all[i].err = a.describePlugin(ctx, place)
			all[i].took = time.Since(began)
			return nil
		})
	}
	return all, asking.Wait()
}

// describePlugin asks the plugin at a place what it is.
func (a *app) describePlugin(ctx context.Context, place pluginhost.Place) (_ *plugin, err error) {
	p := &plugin{spec: a.pluginSpec(place)}
	if p.Description, err = pluginhost.Describe(ctx, p.spec); err != nil {
		return nil, pluginError(place, err)
	}
	return p, nil
}
