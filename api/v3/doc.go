// Package v3 has the JSON shapes of the platform's v3 API, of log-cache and of
// dew's own calls beside them, shared by the server and the command line. It is
// data only: one file per resource, the same name as in package api.
//
// Shapes carry every field that clients of the platform read; a pointer without
// omitempty is a field that is null when there is nothing to say. Times are
// RFC 3339 in UTC, cut to seconds where the platform cuts them (see Time).
package v3
