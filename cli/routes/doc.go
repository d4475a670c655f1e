// Package routes has the dew commands for routes, domains and router groups. Each
// command parses its arguments, calls the API and prints the result.
package routes
