// Package routes has the commands of dew about routes and domains.
package routes
