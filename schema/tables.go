package schema

// Content is one of the tables that the migrations make, on both databases.
type Content struct {
	Name string
	// Key are columns that are unique together and never NULL, on both databases.
	Key []string
	// Apart means that the table is on Postgres alone: a copy has what it holds in the rows of another.
	Apart bool
	// Grants are the privileges on Postgres that a role needs for all that a ledger does but
	// migrate and copy: no more and no fewer.
	Grants []string
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

// MetaGrants are the Grants of Meta and of Table.
var MetaGrants = []string{"SELECT"}

// Tables are all tables of a ledger but Meta and Table, in the order in which they are copied.
// A test of package tables compares them with what the migrations make, one of the Postgres store
// what they grant with what is needed.
var Tables = []Content{
	{Name: "ledger_kinds", Key: []string{"kind"}, Grants: []string{"SELECT", "INSERT", "UPDATE"}},
	{Name: "ledger_items", Key: []string{"id"}, Grants: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{Name: "ledger_backlog", Key: []string{"item_id"}, Grants: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{Name: "ledger_leases", Key: []string{"lock_id"}, Apart: true, Grants: []string{"SELECT", "INSERT", "UPDATE",
		"DELETE"}},
	{Name: "ledger_attempts", Key: []string{"item_id", "attempt"}, Grants: []string{"SELECT", "INSERT", "UPDATE",
		"DELETE"}},
	{Name: "ledger_agents", Key: []string{"agent"}, Grants: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{Name: "ledger_lanes", Key: []string{"kind", "limit_key"}, Grants: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{Name: "ledger_locks", Key: []string{"name"}, Grants: []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
	{Name: "ledger_tallies", Key: []string{"at", "kind", "agent"}, Grants: []string{"SELECT", "INSERT", "UPDATE",
		"DELETE"}},
	{Name: "ledger_journal", Key: []string{"id"}, Grants: []string{"SELECT", "INSERT"}},
}
