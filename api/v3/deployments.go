package v3

// Deployment replaces the instances of an app one after the other.
type Deployment struct {
	GUID string `json:"guid"`
}
