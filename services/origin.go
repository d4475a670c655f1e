package services

// Origin is the kind of user who set a URL that dewd connects to.
type Origin string

// The origins of a URL. A URL that was stored before dewd recorded origins has an empty
// Origin and stays unrestricted.
const (
	ByAdmin Origin = "admin"
	ByUser  Origin = "user" // dewd connects to it only as egress.Policy allows
)

// Restricted reports whether dewd connects to the URL only as egress.Policy allows.
func (o Origin) Restricted() bool { return o == ByUser }
