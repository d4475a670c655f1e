// Package userns gives containers users that exist nowhere else on the machine: root in a
// container is an ordinary user outside it. The files of a container keep their owners on
// disk. Their mounts translate the owners, so that old and new containers share layers.
package userns
