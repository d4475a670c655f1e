package rest

import (
	"github.com/dewrun/dew/api/v3"
	"github.com/dewrun/dew/app"
)

// PresentMetadata returns labels and annotations for a response. Neither is null.
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
