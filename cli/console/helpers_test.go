package console

import (
	"io"
	"strings"
)

func quiet() *Console { return &Console{Out: io.Discard, Err: io.Discard, In: strings.NewReader("")} }
