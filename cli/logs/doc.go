// Package logs has the commands of dew about log lines and events.
package logs
