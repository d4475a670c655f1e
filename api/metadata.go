package api

import (
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// presentMetadata shows labels and annotations; neither is null.
func presentMetadata(m app.Metadata) v3.Metadata {
	out := v3.NoMetadata()
	for k, v := range m.Labels {
		out.Labels[k] = &v
	}
	for k, v := range m.Annotations {
		out.Annotations[k] = &v
	}
	return out
}

// metadataChange is what a body says of labels and annotations; null takes a key
// away, what is absent stays.
func metadataChange(m *v3.Metadata) app.MetadataChange {
	if m == nil {
		return app.MetadataChange{}
	}
	return app.MetadataChange{Labels: m.Labels, Annotations: m.Annotations}
}
