package notify

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/golang-jwt/jwt/v5"

	"github.com/dewrun/dew/auth"
	"github.com/dewrun/dew/inbound"
	"github.com/dewrun/dew/notify/delivery"
)

// problem is an error with the status and message of the notification service.
type problem struct {
	status  int
	message string
	detail  string // a second message; empty: none
}

func (p *problem) Error() string { return p.message }

func problemf(status int, format string, args ...any) *problem {
	return &problem{status: status, message: fmt.Sprintf(format, args...)}
}

// invalid returns the error for a body that could be parsed but is invalid.
func invalid(format string, args ...any) *problem {
	return problemf(http.StatusUnprocessableEntity, format, args...)
}

func notFound(format string, args ...any) *problem {
	return problemf(http.StatusNotFound, format, args...)
}

// forbidden returns the error for a caller without permission. The first message is the
// one that clients of the original service know; the second says what is missing.
func forbidden(format string, args ...any) *problem {
	return &problem{http.StatusForbidden, "You are not authorized to perform the requested action", fmt.Sprintf(format, args...)}
}

// missingScope returns the error for a token without any of the scopes.
func missingScope(oneOf ...string) *problem {
	if len(oneOf) == 1 {
		return forbidden("The token needs the scope %s", oneOf[0])
	}
	return forbidden("The token needs one of the scopes %s", strings.Join(oneOf, ", "))
}

// The errors that many endpoints share.
var (
	errParse    = problemf(http.StatusBadRequest, "Request body could not be parsed")
	errInternal = problemf(http.StatusInternalServerError, "Internal Server Error")
	errAddress  = problemf(http.StatusBadRequest, "Request address is not valid UTF-8")
	errTooSlow  = problemf(http.StatusRequestTimeout, "Request body arrived too slowly")
	errTooLarge = problemf(http.StatusRequestEntityTooLarge, "Request body has more than %d bytes", maxBody)
)

// toProblem returns the error that clients see.
func toProblem(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge
	}
	return errInternal
}

// errorBody is the JSON format of all errors.
type errorBody struct {
	Errors []string `json:"errors"`
}

// unauthorized returns the error for a rejected token.
func unauthorized(reason string) *problem {
	return problemf(http.StatusUnauthorized, "Authorization header is invalid: %s", reason)
}

// The reasons, with the texts that clients expect.
const (
	reasonMissing  = "missing"
	reasonExpired  = "token is expired"
	reasonTooEarly = "token is not valid yet"
	reasonRevoked  = "token is revoked"
	reasonSegments = "token contains an invalid number of segments"
	reasonNoKey    = "Unable to lookup key id for the token"
	reasonForged   = "crypto/rsa: verification error"
	reasonCorrupt  = "corrupt" // the only reason in version 2
	reasonOther    = "token is invalid"
)

// tokenError returns the error for a token that was rejected because of err.
func tokenError(version int, token string, err error) error {
	switch {
	case errors.Is(err, auth.ErrExpired):
		return unauthorized(reasonExpired)
	case errors.Is(err, auth.ErrRevoked):
		return unauthorized(reasonRevoked)
	case errors.Is(err, auth.ErrInvalidToken) && version == delivery.V2:
		return unauthorized(reasonCorrupt)
	case errors.Is(err, auth.ErrInvalidToken):
		return unauthorized(tokenProblem(token, err))
	}
	return fmt.Errorf("cannot verify a token: %w", err)
}

// tokenHeader is the part of a token that says how to verify it.
type tokenHeader struct {
	Alg string `json:"alg"`
	Kid string `json:"kid"`
}

// tokenProblem returns the reason why a token is invalid.
func tokenProblem(token string, err error) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return reasonSegments
	}
	for _, part := range parts {
		if _, err := base64.RawURLEncoding.DecodeString(part); err != nil {
			return err.Error()
		}
	}
	raw, _ := base64.RawURLEncoding.DecodeString(parts[0]) // decoded above
	var h tokenHeader
	if json.Unmarshal(raw, &h) != nil {
		return reasonOther
	}
	switch {
	case h.Alg != jwt.SigningMethodRS256.Alg():
		return "Unsupported signing method " + inbound.Shorten(cmp.Or(h.Alg, "none"))
	case h.Kid == "":
		return reasonNoKey
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return reasonTooEarly
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return "unknown key with id " + inbound.Shorten(h.Kid)
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return reasonForged
	}
	return reasonOther
}
