package app

import (
	"context"
	"encoding/json"
	"time"
)

// JobState is how far a job is.
type JobState string

// The states of a job.
const (
	JobProcessing JobState = "PROCESSING"
	JobComplete   JobState = "COMPLETE"
	JobFailed     JobState = "FAILED"
)

// Job is something that was asked for and takes longer than the answer.
type Job struct {
	GUID      string          `json:"guid"`
	Operation string          `json:"operation"` // "space.apply_manifest"
	State     JobState        `json:"state"`
	Args      json.RawMessage `json:"args,omitempty"`
	By        Actor           `json:"by,omitzero"` // who asked for it
	Errors    []JobError      `json:"errors,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	CreatedAt time.Time       `json:"created_at"`
	UpdatedAt time.Time       `json:"updated_at"`
}

// JobError is why a job failed, as the platform writes it. A function that wants
// a certain code returns one.
type JobError struct {
	Code   int    `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func (e *JobError) Error() string { return e.Detail }

// JobFunc does a job. It may be called again for a job that an earlier daemon did
// not get to the end of, so doing it twice must be the same as doing it once.
type JobFunc func(ctx context.Context, j Job) (warnings []string, err error)
