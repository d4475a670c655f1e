package services

// Origin is who chose a URL that dewd connects to.
type Origin string

// Who may have chosen a URL. The empty Origin is that of a URL from before dewd kept
// it: it goes on to work.
const (
	ByAdmin Origin = "admin"
	ByUser  Origin = "user" // dewd connects to it as egress.Policy allows
)

// Restricted tells whether dewd connects to the URL only as egress.Policy allows.
func (o Origin) Restricted() bool { return o == ByUser }
