package schema

// Content is one of the tables that the migrations make, on both databases.
type Content struct {
	Name string
	// Key are columns that are unique together and never NULL, on both databases.
	Key []string
	// Seeded says that migrations put rows into it: a ledger that holds nothing else is empty.
	Seeded bool
}

// Meta is the table that says which ledger this is and who may use it, not what is in it.
const Meta = "ledger_meta"

// CopyFrom is the key in Meta that marks a ledger into which another is being copied: its value is
// that ledger's id. Until it is gone, the rows are not all there.
const CopyFrom = "copy_from"

// Tables are all tables of a ledger but Meta and goose's, in the order in which they are copied.
// A test of each store compares them with what its migrations make.
var Tables = []Content{
	{Name: "ledger_kinds", Key: []string{"kind"}},
	{Name: "ledger_items", Key: []string{"id"}},
	{Name: "ledger_backlog", Key: []string{"item_id"}},
	{Name: "ledger_attempts", Key: []string{"item_id", "attempt"}},
	{Name: "ledger_agents", Key: []string{"agent"}},
	{Name: "ledger_journal", Key: []string{"id"}},
}
