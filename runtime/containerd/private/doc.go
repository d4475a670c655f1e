// Package private starts and supervises a private containerd, for machines on which no
// containerd runs.
package private
