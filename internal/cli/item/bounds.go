package item

import "time"

// upkeepLimit is the most waiting items that a claim makes ready, and the most expired leases that it ends.
const upkeepLimit = 1000

// lookTime bounds the search of a list for people.
const lookTime = 2 * time.Second
