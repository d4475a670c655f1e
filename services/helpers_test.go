package services

import (
	"errors"
	"testing"
)

// detail returns the message of a refusal, or "" if there is no error.
func detail(t *testing.T, err error) string {
	t.Helper()
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrNotFound):
		return "not found"
	case !IsRefusal(err):
		t.Errorf("error %v is neither Invalid nor Refused", err)
	}
	return err.Error()
}
