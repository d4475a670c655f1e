// Package mainprocess has the main process of a container. PID 1 starts it when the
// container starts, which saves one exec of the container runtime per instance. It has the
// standard streams of the container, so the shim copies its output.
package mainprocess
