// Package rollout has the rules of deployments: how many instances of which generation
// of a process should run next. It has no state and reads nothing.
package rollout
