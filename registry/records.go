package registry

import (
	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// records are what the platform remembers beside wishes for apps: variables of all
// apps, limits, rules, segments, and what was used.
type records struct {
	variables *store.Bucket[app.EnvGroup]
	quotas    *store.Bucket[app.Quota]
	rules     *store.Bucket[app.SecurityGroup]
	segments  *store.Bucket[app.Segment]
	usage     *store.Bucket[app.Usage]
	first     *store.Bucket[firstStart]
}

// firstStart says that the org and the space of a first start were made.
type firstStart struct {
	Space string `json:"space"` // guid; it may have another name since, or be gone
}

const firstStartKey = "done"

func newRecords(db *store.DB) records {
	return records{
		variables: store.In[app.EnvGroup](db, "variable_groups"),
		quotas: store.In(db, "quotas",
			store.Unique("org and name", func(q app.Quota) string { return q.Org + "\x00" + q.Name })),
		rules: store.In(db, "security_groups",
			store.Unique("name", func(g app.SecurityGroup) string { return g.Name })),
		segments: store.In(db, "segments",
			store.Unique("name", func(s app.Segment) string { return s.Name })),
		usage: store.In[app.Usage](db, "usage"),
		first: store.In[firstStart](db, "first_start"),
	}
}

func (s records) with(tx *store.Tx) records {
	return records{
		variables: s.variables.With(tx), quotas: s.quotas.With(tx), rules: s.rules.With(tx),
		segments: s.segments.With(tx), usage: s.usage.With(tx), first: s.first.With(tx),
	}
}
