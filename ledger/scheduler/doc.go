// Package scheduler decides which ready items a claim leases. It has no database: a store reads the ready items, calls
// a rule of this package, and writes what the rule returns.
//
// Each rule has its own file:
//
//	order.go      the order in which items are claimed
//	shard.go      slots, and the part of them that a claim takes
//	limits.go     the limits of a kind
//	rate.go       how many items begin in a time
//	admission.go  how many items a claim may still lease, of a kind and of each shard key
//	named.go      the lanes of a claim that names its items
//	cursor.go     where a claim begins among the shard keys, and how it goes on
//
// All times are those of the database's clock.
package scheduler
