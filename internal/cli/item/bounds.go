package item

import "time"

// upkeepLimit is the most items that one call of the ledger makes ready, takes from expired leases, or prunes.
const upkeepLimit = 1000

// lookTime bounds a search whose result is a table: a person waits for it.
const lookTime = 2 * time.Second
