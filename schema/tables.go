package schema

// Content is a table that the migrations make.
type Content struct {
	Name string
	// Key are columns that are unique together and never NULL, on both databases.
	Key []string
	// Apart means that only Postgres has the table. A copy carries its content in the rows of another table.
	Apart bool
	// grants has the privileges on Postgres that each role needs, in the order of Roles and in the letters of aclitem:
	// a INSERT, r SELECT, w UPDATE, d DELETE.
	grants [4]string
}

// Meta is the table of facts about the ledger as a whole, such as its id.
const Meta = "ledger_meta"

// Restored is the key in Meta under which a ledger has its floors, with spaces between them. Without it, the ledger was
// never restored.
const Restored = "restored"

// Environment is the key in Meta under which a ledger has its environment. Without it, programs of every environment
// use it.
const Environment = "environment"

// Home is the key in Meta under which a ledger on Postgres records where its database is, in words of the store.
const Home = "home"

// Tables are all tables of a ledger but Meta and Table, in the order in which they are copied. A test of package tables
// compares them with those that the migrations make, and a test of the Postgres store tests their grants.
var Tables = []Content{
	{Name: "ledger_kinds", Key: []string{"kind"}, grants: [4]string{"r", "r", "r", "arw"}},
	{Name: "ledger_items", Key: []string{"id"}, grants: [4]string{"r", "arw", "arw", "arwd"}},
	{Name: "ledger_backlog", Key: []string{"item_id"}, grants: [4]string{"r", "arw", "arwd", "arwd"}},
	{Name: "ledger_leases", Key: []string{"lock_id"}, Apart: true, grants: [4]string{"r", "r", "arwd", "arwd"}},
	{Name: "ledger_attempts", Key: []string{"item_id", "attempt"}, grants: [4]string{"r", "r", "arwd", "arwd"}},
	{Name: "ledger_agents", Key: []string{"agent"}, grants: [4]string{"r", "", "arwd", "arwd"}},
	{Name: "ledger_lanes", Key: []string{"kind", "limit_key"}, grants: [4]string{"r", "", "arwd", "arwd"}},
	{Name: "ledger_locks", Key: []string{"name"}, grants: [4]string{"r", "", "arwd", "arwd"}},
	{Name: "ledger_tallies", Key: []string{"at", "kind", "agent"}, grants: [4]string{"r", "", "arwd", "arwd"}},
	{Name: "ledger_journal", Key: []string{"id"}, grants: [4]string{"r", "", "", "ar"}},
}
