package client

import "github.com/dewrun/dew/api/v3"

// Role is what somebody may do in an organization or in a space.
type Role struct {
	GUID          string            `json:"guid"`
	Type          string            `json:"type"`
	Relationships RoleRelationships `json:"relationships"`
}

// RoleRelationships of a role; one of Organization and Space is to none.
type RoleRelationships struct {
	User         v3.ToOne `json:"user"`
	Organization v3.ToOne `json:"organization"`
	Space        v3.ToOne `json:"space"`
}

// User is a user, or a client that holds a role: then it has no Username.
type User struct {
	GUID             string `json:"guid"`
	Username         string `json:"username"`
	PresentationName string `json:"presentation_name"`
	Origin           string `json:"origin"`
}

// Buildpack makes droplets.
type Buildpack struct {
	GUID     string `json:"guid"`
	Name     string `json:"name"`
	Stack    string `json:"stack"`
	Position int    `json:"position"`
	Enabled  bool   `json:"enabled"`
	Locked   bool   `json:"locked"`
	State    string `json:"state"`
	Filename string `json:"filename"`
}

// Stack is a root file system.
type Stack struct {
	GUID        string `json:"guid"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// Credentials are the answer of GET /dew/v1/credentials.
type Credentials struct {
	API      string `json:"api"`
	Username string `json:"username"`
	Password string `json:"password"`
}
