// Package netpolicy decides which connections of instances are allowed: network
// policies between apps, security groups towards the outside, and service bindings. It
// stores the policies, turns the desired state into a Ruleset, keeps the firewall up to
// date, and explains refused connections in the log of the app.
package netpolicy
