package rest

import (
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// PresentMetadata shows labels and annotations; neither is null.
func PresentMetadata(m app.Metadata) v3.Metadata {
	out := v3.NoMetadata()
	for k, v := range m.Labels {
		out.Labels[k] = &v
	}
	for k, v := range m.Annotations {
		out.Annotations[k] = &v
	}
	return out
}

// MetadataChange is what a body says of labels and annotations; null takes a key
// away, what is absent stays.
func MetadataChange(m *v3.Metadata) app.MetadataChange {
	if m == nil {
		return app.MetadataChange{}
	}
	return app.MetadataChange{Labels: m.Labels, Annotations: m.Annotations}
}
