package v3

// User is an account that can have roles: a user, or a client, which has no name.
type User struct {
	GUID             string   `json:"guid"`
	CreatedAt        Time     `json:"created_at"`
	UpdatedAt        Time     `json:"updated_at"`
	Username         *string  `json:"username"`
	PresentationName string   `json:"presentation_name"`
	Origin           *string  `json:"origin"`
	Metadata         Metadata `json:"metadata"`
	Links            Links    `json:"links"`
}

// CreateUser is the body of POST /v3/users: a guid, or a name with its origin.
type CreateUser struct {
	GUID     string    `json:"guid,omitempty"`
	Username string    `json:"username,omitempty"`
	Origin   string    `json:"origin,omitempty"`
	Metadata *Metadata `json:"metadata,omitempty"`
}

// UpdateUser is the body of PATCH /v3/users/:guid.
type UpdateUser struct {
	Metadata *Metadata `json:"metadata,omitempty"`
}

// Credentials are the addresses and credentials that other programs need to act as the
// administrator.
type Credentials struct {
	API      string `json:"api"`
	Username string `json:"username"`
	Password string `json:"password,omitempty"` // the first password, empty if it was changed since
}

// LocalToken is the response of POST /dew/v1/token.
type LocalToken struct {
	Token string `json:"access_token"`
	Type  string `json:"token_type"`
}
