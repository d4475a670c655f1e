package api

import (
	"net/http"

	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

func (s *Server) listDomains(r *http.Request) (any, error) {
	q, err := readQuery(r, "names", "guids")
	if err != nil {
		return nil, err
	}
	all, err := s.c.Registry.Domains()
	if err != nil {
		return nil, err
	}
	var found []app.Domain
	for _, d := range all {
		if q.letsFold("names", d.Name) && q.lets("guids", d.GUID) {
			found = append(found, d)
		}
	}
	return list(s, r, q, found, look[app.Domain, v3.Domain]{
		key: func(d app.Domain) key { return key{d.Name, d.CreatedAt, d.UpdatedAt, d.GUID} },
		present: func(d app.Domain) v3.Domain {
			return v3.Domain{
				GUID: d.GUID, CreatedAt: v3.At(d.CreatedAt), UpdatedAt: v3.At(d.UpdatedAt), Name: d.Name, Internal: d.Internal,
				SupportedProtocols: []string{"http"}, Metadata: v3.NoMetadata(),
				Links: v3.Links{"self": {Href: s.href("v3", "domains", d.GUID)}},
			}
		},
	}), nil
}

// domainNames gives the name by the guid.
func (s *Server) domainNames() (map[string]string, error) {
	all, err := s.c.Registry.Domains()
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(all))
	for _, d := range all {
		names[d.GUID] = d.Name
	}
	return names, nil
}
