package v3

// List is one page of resources. Resources is never null.
type List[T any] struct {
	Pagination Pagination `json:"pagination"`
	Resources  []T        `json:"resources"`

	// Included are related resources by kind, if the request asks for them.
	Included map[string]any `json:"included,omitempty"`
}

// Pagination has the links to the other pages. The hrefs are absolute.
type Pagination struct {
	TotalResults int   `json:"total_results"`
	TotalPages   int   `json:"total_pages"`
	First        Link  `json:"first"`
	Last         Link  `json:"last"`
	Next         *Link `json:"next"`
	Previous     *Link `json:"previous"`
}
