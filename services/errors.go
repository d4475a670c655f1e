package services

import (
	"fmt"
	"net/http"

	"github.com/dewrun/dew/app"
)

// ErrNotFound is returned if the broker, offering, plan, instance, binding or operation
// does not exist.
var ErrNotFound = app.ErrNotFound

// Invalid is the error for an invalid key of a request (422 Unprocessable Entity), with
// Cloud Foundry's message. Several of them can be joined.
type Invalid struct {
	Key    string // "name", "parameters"
	Detail string
}

func (e *Invalid) Error() string { return e.Detail }

// Refused is an error for which Cloud Foundry has a code and a title.
type Refused struct {
	Status int    `json:"status"` // of the HTTP response
	Code   int    `json:"code"`
	Title  string `json:"title"` // "CF-AsyncServiceInstanceOperationInProgress"
	Detail string `json:"detail"`
}

func (e *Refused) Error() string { return e.Detail }

// NewInvalid returns the error for an invalid key of a request.
func NewInvalid(key, format string, args ...any) error {
	return &Invalid{Key: key, Detail: fmt.Sprintf(format, args...)}
}

// ErrBusy returns the error for a service instance that has an operation in progress.
func ErrBusy(instance string) error {
	return &Refused{
		Status: http.StatusConflict, Code: 60016, Title: "CF-AsyncServiceInstanceOperationInProgress",
		Detail: fmt.Sprintf("An operation for service instance %s is in progress.", instance),
	}
}
