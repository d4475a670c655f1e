package smoketest

import (
	"io"
	"strings"

	"github.com/dewrun/dew/cli/console"
)

func quiet() *console.Console {
	return &console.Console{Out: io.Discard, Err: io.Discard, In: strings.NewReader("")}
}
