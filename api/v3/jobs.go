package v3

// The states of a job.
const (
	JobProcessing = "PROCESSING"
	JobPolling    = "POLLING" // dew polls the broker until the operation is done
	JobComplete   = "COMPLETE"
	JobFailed     = "FAILED"
)

// Job is work that continues after the response to its request.
type Job struct {
	GUID      string    `json:"guid"`
	CreatedAt Time      `json:"created_at"`
	UpdatedAt Time      `json:"updated_at"`
	Operation string    `json:"operation"`
	State     string    `json:"state"`
	Errors    []Error   `json:"errors"`   // never null, not empty if FAILED
	Warnings  []Warning `json:"warnings"` // never null
	Links     Links     `json:"links"`
}

// Warning is a warning for the user.
type Warning struct {
	Detail string `json:"detail"`
}
