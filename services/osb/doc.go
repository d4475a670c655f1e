// Package osb is the client of the Open Service Broker API 2.17: requests, responses
// and their errors.
package osb
