// Package logs has the dew commands for log lines and events.
package logs
