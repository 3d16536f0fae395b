package schema

// Content is one of the tables that the migrations make, on both databases.
type Content struct {
	Name string
	// Key are columns that are unique together and never NULL, on both databases.
	Key []string
	// Apart means that the table is on Postgres alone: a copy has what it holds in the rows of another.
	Apart bool
	// grants has the privileges on Postgres that each role needs, in the order of Roles and in the letters of aclitem:
	// a INSERT, r SELECT, w UPDATE, d DELETE.
	grants [4]string
}

// Meta is the table that identifies the ledger and its users, not its content.
const Meta = "ledger_meta"

// CopyFrom is the key in Meta that marks a ledger into which another is being copied: its value is
// that ledger's id. Until it is gone, the rows are not all there.
const CopyFrom = "copy_from"

// Restored is the key in Meta under which a ledger has its floors, with spaces between them. Without it, the ledger was
// never restored.
const Restored = "restored"

// Home is the key in Meta under which a ledger on Postgres has where its database was, in words of the store.
const Home = "home"

// Tables are all tables of a ledger but Meta and Table, in the order in which they are copied.
// A test of package tables compares them with what the migrations make, one of the Postgres store
// what they grant with what is needed.
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
