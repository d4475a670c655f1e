package platform

import (
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/services"
)

// FailureOf is why an operation failed, in the platform's words.
func FailureOf(o services.Operation) v3.Error {
	if o.Failure != nil {
		return v3.Error{Code: o.Failure.Code, Title: o.Failure.Title, Detail: o.Failure.Detail}
	}
	return v3.Error{Code: v3.CodeUnprocessable, Title: v3.TitleUnprocessable, Detail: o.Description}
}
