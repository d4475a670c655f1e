package services

import (
	"fmt"
	"net/http"

	"github.com/dewrun/dew/app"
)

// ErrNotFound says that there is no such broker, offering, plan, instance, binding
// or operation.
var ErrNotFound = app.ErrNotFound

// Invalid says which key of a request is invalid, in the words of Cloud Foundry: an
// unprocessable request. Several of them come joined.
type Invalid struct {
	Key    string // "name", "parameters"
	Detail string
}

func (e *Invalid) Error() string { return e.Detail }

// Refused is a refusal for which the platform has a code and a title.
type Refused struct {
	Status int    `json:"status"` // of the HTTP answer
	Code   int    `json:"code"`
	Title  string `json:"title"` // "CF-AsyncServiceInstanceOperationInProgress"
	Detail string `json:"detail"`
}

func (e *Refused) Error() string { return e.Detail }

// NewInvalid is the error for a key of a request.
func NewInvalid(key, format string, args ...any) error {
	return &Invalid{Key: key, Detail: fmt.Sprintf(format, args...)}
}

// ErrBusy is the error while an operation of a service instance is in progress.
func ErrBusy(instance string) error {
	return &Refused{
		Status: http.StatusConflict, Code: 60016, Title: "CF-AsyncServiceInstanceOperationInProgress",
		Detail: fmt.Sprintf("An operation for service instance %s is in progress.", instance),
	}
}
