package smtp

import (
	"context"
	"fmt"

	"github.com/dewrun/dew/notify/delivery"
)

func people(n int) (ps []delivery.Person) {
	for i := range n {
		ps = append(ps, delivery.Person{GUID: fmt.Sprintf("user-%d", i), Email: fmt.Sprintf("user-%d@example.com", i)})
	}
	return ps
}

// composerFunc is a Composer.
type composerFunc func(m delivery.Message, n delivery.Notice) (delivery.Mail, error)

func (f composerFunc) Compose(_ context.Context, m delivery.Message, n delivery.Notice) (delivery.Mail, error) {
	return f(m, n)
}
