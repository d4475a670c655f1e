// Package osb is a client of the Open Service Broker API 2.17. It sends requests,
// parses responses and converts their errors.
package osb
