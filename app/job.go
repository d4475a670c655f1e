package app

import (
	"context"
	"encoding/json"
	"time"
)

// JobState is the state of a job.
type JobState string

// The states of a job.
const (
	JobProcessing JobState = "PROCESSING"
	JobComplete   JobState = "COMPLETE"
	JobFailed     JobState = "FAILED"
)

// Job is a request that takes longer than its response.
type Job struct {
	GUID      string          `json:"guid"`
	Operation string          `json:"operation"` // "space.apply_manifest"
	State     JobState        `json:"state"`
	Args      json.RawMessage `json:"args,omitempty"`
	By        Actor           `json:"by,omitzero"` // user who started the job
	Errors    []JobError      `json:"errors,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

// JobError is the reason why a job failed, in the format of Cloud Foundry. A JobFunc
// returns one to choose the code.
type JobError struct {
	Code   int    `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func (e *JobError) Error() string { return e.Detail }

// JobFunc runs a job. It must be idempotent, because it is called again for a job that
// an earlier daemon did not finish.
type JobFunc func(ctx context.Context, j Job) (warnings []string, err error)
