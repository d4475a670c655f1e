package app

// Used is what the apps and routes of an org or a space take.
type Used struct {
	Memory    int // MB of started instances and tasks
	Instances int // started
	Tasks     int // that have not ended
	Routes    int
	Ports     int // of TCP routes
	Domains   int // private ones, of an org
}
