package command

import (
	"errors"
)

var errBroken = errors.New("broken")
