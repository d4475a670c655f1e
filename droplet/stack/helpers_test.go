package stack

import (
	"testing"

	"github.com/dewrun/dew/store"
	"github.com/dewrun/dew/testkit"
)

func openDB(t testing.TB, path string) *store.DB {
	t.Helper()
	return testkit.Open(store.Open(path, store.Options{NoSync: true}))(t)
}
