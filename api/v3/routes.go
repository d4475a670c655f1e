package v3

// Route leads from a name to processes.
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
	Included      map[string]any     `json:"included,omitempty"` // of a single one
	// Problem is of this daemon alone: why nothing answers on the port of a TCP route.
	Problem string `json:"problem,omitempty"`
}

// CreateRoute is the body of POST /v3/routes.
type CreateRoute struct {
	Host          string             `json:"host,omitempty"`
	Path          string             `json:"path,omitempty"`
	Port          *Int               `json:"port,omitempty"`
	Options       map[string]*string `json:"options,omitempty"`
	Relationships RouteRelationships `json:"relationships"`
	Metadata      *Metadata          `json:"metadata,omitempty"`
}

// UpdateRoute is the body of PATCH /v3/routes/:guid; an option that is null goes.
type UpdateRoute struct {
	Options  map[string]*string `json:"options,omitempty"`
	Metadata *Metadata          `json:"metadata,omitempty"`
}

// Reservation is the answer of GET /v3/domains/:guid/route_reservations.
type Reservation struct {
	Matching bool `json:"matching_route"`
}

// RouteRelationships of a route.
type RouteRelationships struct {
	Space  ToOne `json:"space"`
	Domain ToOne `json:"domain"`
}

// Destination is where a route leads.
type Destination struct {
	GUID      string         `json:"guid"`
	CreatedAt Time           `json:"created_at"`
	UpdatedAt Time           `json:"updated_at"`
	App       DestinationApp `json:"app"`
	Weight    *int           `json:"weight"`
	Port      int            `json:"port"`
	Protocol  string         `json:"protocol"` // http1 or http2
	// Pending is of this daemon alone: an instance runs that lacks the port, and is
	// reached as before until it is restarted.
	Pending bool `json:"pending,omitempty"`
}

// DestinationApp is the app and process type that a route leads to.
type DestinationApp struct {
	GUID    string             `json:"guid"`
	Process DestinationProcess `json:"process"`
}

// DestinationProcess is a process type.
type DestinationProcess struct {
	Type string `json:"type"`
}

// Destinations is the answer of /v3/routes/:guid/destinations.
type Destinations struct {
	Destinations []Destination `json:"destinations"`
	Links        Links         `json:"links,omitempty"`
}

// ChangeDestinations is the body of POST (add) and PATCH (replace) there.
type ChangeDestinations struct {
	Destinations []NewDestination `json:"destinations"`
}

// UpdateDestination is the body of PATCH /v3/routes/:guid/destinations/:destination;
// null is the route's default.
type UpdateDestination struct {
	Protocol *string `json:"protocol"`
}

// NewDestination is a destination that is to be; what is absent has its default
// (process type web, the process's own port, http1).
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
