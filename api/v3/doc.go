// Package v3 has the JSON types of Cloud Foundry's v3 API, of log-cache and of dew's
// own endpoints. The server and the command line share them. It is data only: one file
// per resource, with the same name as in package api.
//
// The types have every field that Cloud Foundry clients read. A pointer without
// omitempty is a field that is null if there is no value. Times are RFC 3339 in UTC,
// cut to seconds where Cloud Foundry cuts them (see Time).
package v3
