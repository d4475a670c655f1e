package platform

import "github.com/dewrun/dew/api/v3"

// LogRate is a limit as the desired state has it: nil is none.
func LogRate(n v3.Int) *int64 {
	if n <= NoLogLimit {
		return nil
	}
	rate := int64(n)
	return &rate
}

// NoLogLimit is how the platform writes that logs are not limited.
const NoLogLimit = -1
