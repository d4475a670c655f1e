// Package platform has the dew commands that manage the platform: logins, targets,
// orgs, spaces, users, roles, quotas, security groups, isolation segments, labels and
// usage events. Each command parses its arguments, calls the API and prints the result.
package platform
