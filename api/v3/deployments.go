package v3

// Deployment replaces the instances of an app one after the other.
type Deployment struct {
	GUID string `json:"guid"`
}

// RouteBinding binds a service to a route.
type RouteBinding struct {
	GUID string `json:"guid"`
}
