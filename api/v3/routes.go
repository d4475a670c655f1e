package v3

import "encoding/json"

// Route maps an address to processes.
type Route struct {
	GUID          string             `json:"guid"`
	CreatedAt     Time               `json:"created_at"`
	UpdatedAt     Time               `json:"updated_at"`
	Protocol      string             `json:"protocol"` // http or tcp
	Host          string             `json:"host"`
	Path          string             `json:"path"`
	Port          *int               `json:"port"`
	URL           string             `json:"url"` // host.domain/path or domain:port, as clients show it
	Destinations  []Destination      `json:"destinations"`
	Options       map[string]string  `json:"options,omitempty"`
	Relationships RouteRelationships `json:"relationships"`
	Metadata      Metadata           `json:"metadata"`
	Links         Links              `json:"links"`
	Included      map[string]any     `json:"included,omitempty"` // only in responses for a single route
	// Problem is dew's own field: why the port of a TCP route cannot be opened.
	Problem string `json:"problem,omitempty"`
}

// CreateRoute is the body of POST /v3/routes.
type CreateRoute struct {
	Host          string                  `json:"host,omitempty"`
	Path          string                  `json:"path,omitempty"`
	Port          *Int                    `json:"port,omitempty"`
	Options       map[string]*RouteOption `json:"options,omitempty"`
	Relationships RouteRelationships      `json:"relationships"`
	Metadata      *Metadata               `json:"metadata,omitempty"`
}

// UpdateRoute is the body of PATCH /v3/routes/:guid. A null option is removed.
type UpdateRoute struct {
	Options  map[string]*RouteOption `json:"options,omitempty"`
	Metadata *Metadata               `json:"metadata,omitempty"`
}

// RouteOption is the value of a route option. In requests it can be a number.
type RouteOption string

// UnmarshalJSON accepts "1.25" and 1.25.
func (o *RouteOption) UnmarshalJSON(b []byte) error {
	var n json.Number
	if len(b) > 0 && b[0] != '"' && json.Unmarshal(b, &n) == nil {
		*o = RouteOption(n)
		return nil
	}
	return json.Unmarshal(b, (*string)(o))
}

// Reservation is the response of GET /v3/domains/:guid/route_reservations.
type Reservation struct {
	Matching bool `json:"matching_route"`
}

// RouteRelationships of a route.
type RouteRelationships struct {
	Space  ToOne `json:"space"`
	Domain ToOne `json:"domain"`
}

// Destination is a destination of a route.
type Destination struct {
	GUID      string         `json:"guid"`
	CreatedAt Time           `json:"created_at"`
	UpdatedAt Time           `json:"updated_at"`
	App       DestinationApp `json:"app"`
	Weight    *int           `json:"weight"`
	Port      int            `json:"port"`
	Protocol  string         `json:"protocol"` // http1 or http2
	// Pending is dew's own field: a running instance lacks the port. Until its restart,
	// requests go to the previous port.
	Pending bool `json:"pending,omitempty"`
}

// DestinationApp is the app and process type of a destination.
type DestinationApp struct {
	GUID    string             `json:"guid"`
	Process DestinationProcess `json:"process"`
}

// DestinationProcess is a process type.
type DestinationProcess struct {
	Type string `json:"type"`
}

// Destinations is the response of /v3/routes/:guid/destinations.
type Destinations struct {
	Destinations []Destination `json:"destinations"`
	Links        Links         `json:"links,omitempty"`
}

// ChangeDestinations is the body of POST (add) and PATCH (replace) there.
type ChangeDestinations struct {
	Destinations []NewDestination `json:"destinations"`
}

// UpdateDestination is the body of PATCH /v3/routes/:guid/destinations/:destination.
// Null is the route's default.
type UpdateDestination struct {
	Protocol *string `json:"protocol"`
}

// NewDestination is a destination to create. Missing keys have their default (process
// type web, the process's own port, http1).
type NewDestination struct {
	App      NewDestinationApp `json:"app"`
	Weight   *Int              `json:"weight,omitempty"`
	Port     *Int              `json:"port,omitempty"`
	Protocol string            `json:"protocol,omitempty"`
}

// NewDestinationApp names the app, and the process type if it is not web.
type NewDestinationApp struct {
	GUID    string              `json:"guid"`
	Process *DestinationProcess `json:"process,omitempty"`
}
