package network

import (
	"github.com/dewrun/dew/runtime"
	"github.com/dewrun/dew/runtime/process"
)

// Listening returns the sockets that listen in the network namespace of an instance.
func (n *Bridge) Listening(id runtime.InstanceID) (out []process.Socket, err error) {
	err = inNamespace(n.Path(id), func() (err error) {
		out, err = process.Listening()
		return err
	})
	return out, err
}
