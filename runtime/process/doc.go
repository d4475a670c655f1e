// Package process reads the kernel's data about processes: their state, files and
// environment in /proc, and the exact time of their exits. It also sets their OOM score.
package process
