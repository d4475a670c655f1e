// Package platform has the commands of dew about the platform: logins, targets,
// orgs, spaces, users, roles, quotas, security groups, labels and usage.
package platform
