package daemon

import (
	"time"
)

// hang is how long a command may take: only one that hangs does.
const hang = time.Minute
