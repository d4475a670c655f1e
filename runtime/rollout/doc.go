// Package rollout has the rules of deployments: how many instances of each generation
// of a process should run next. It has no state and reads no data.
package rollout
