package services

// Frozen is what services an app sees.
type Frozen struct {
	JSON  string   // the value of VCAP_SERVICES; empty: nothing is bound
	Names []string // of the service instances, sorted
}

// Frozen returns what services an app sees when it is staged now.
func (b *Book) Frozen(app string) (f Frozen, err error) { return f, err }
