package app

import "time"

// Now is without what would not survive the store: what is returned is equal to
// what will be read.
func Now() time.Time { return time.Now().UTC().Round(0) }
