package droplet

// HostOptions tells which machine to make a stack of, and for whom.
type HostOptions struct {
	Root     string // "": /
	UID, GID int    // of the app's user; 0: 2000
}

// HostStack returns the stack that is the machine's own /usr.
func HostStack(o HostOptions) (Stack, error) { return Stack{}, nil }
