package v3

// The states of a job.
const (
	JobProcessing = "PROCESSING"
	JobPolling    = "POLLING" // a broker was asked, and is asked again until it is done
	JobComplete   = "COMPLETE"
	JobFailed     = "FAILED"
)

// Job is something that goes on after its request was answered.
type Job struct {
	GUID      string    `json:"guid"`
	CreatedAt Time      `json:"created_at"`
	UpdatedAt Time      `json:"updated_at"`
	Operation string    `json:"operation"`
	State     string    `json:"state"`
	Errors    []Error   `json:"errors"`   // never null; not empty when FAILED
	Warnings  []Warning `json:"warnings"` // never null
	Links     Links     `json:"links"`
}

// Warning is something that a user should know.
type Warning struct {
	Detail string `json:"detail"`
}
