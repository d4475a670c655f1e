package network

import (
	"time"

	"github.com/dewrun/dew/runtime"
)

// someInstance is the instance id in the golden files.
const someInstance runtime.InstanceID = "0a1b2c3d-0000-4000-8000-abcd"

// soon is the limit for waits for other threads and processes. Only a hang reaches it.
const soon = time.Minute
