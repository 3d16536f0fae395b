// Package feed is the plugin that reads feeds.
package feed
