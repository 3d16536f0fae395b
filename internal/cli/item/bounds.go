package item

import (
	"time"
)

// upkeepLimit is how many items a claim promotes, and how many it takes from agents whose time is over.
const upkeepLimit = 1000

// lookTime is for how long a list for people looks for what matches.
const lookTime = 2 * time.Second
