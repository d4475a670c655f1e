package apps

import (
	"errors"
)

var errBroken = errors.New("broken")
