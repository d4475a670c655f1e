package builtin

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dewrun/dew/services"
)

// A database that exceeds the disk size of its plan rejects new data and logs that
// once. It accepts data again when there is room.
func TestDiskOfThePlan(t *testing.T) {
	for e, want := range map[*engine][2]string{
		postgres: {"SET default_transaction_read_only = on", "RESET default_transaction_read_only"},
		mariadb:  {"REVOKE INSERT, UPDATE", "GRANT ALL PRIVILEGES"},
	} {
		t.Run(e.name, func(t *testing.T) {
			var lines []string
			listen := func(c *Config) { c.Say = func(_, line string) { lines = append(lines, line) } }
			inBubble(t, listen, func(t *testing.T, b *Broker, h *fakeHost) {
				ask(t, b, req(services.Create, e.name, smallPlan, ""))
				if _, err := b.Binding(t.Context(), services.BindingRequest{Action: services.Create, Binding: "b", Instance: guid}); err != nil {
					t.Fatal(err)
				}
				limit := int64(e.plans[smallPlan].diskMB) << 20
				// The file has that size, but no data is written.
				for _, size := range []int64{limit - 1, limit + 1, limit + 2, limit - 2, limit / 2, limit / 2} {
					grow(t, b, size)
					time.Sleep(2 * defaultMeasure)
					synctest.Wait()
				}
				h.mu.Lock()
				inputs := strings.Join(h.inputs, "")
				h.mu.Unlock()
				if strings.Count(inputs, want[0]) != 1 || strings.LastIndex(inputs, want[1]) < strings.Index(inputs, want[0]) {
					t.Errorf("asked = %s", inputs)
				}
				if len(lines) != 2 || !strings.Contains(lines[0], "(1024 MB of 1024 MB): the service accepts no more data") || !strings.Contains(lines[1], "has free space again (512 MB of 1024 MB)") {
					t.Errorf("said = %q", lines)
				}
			})
		})
	}
}

// grow sets the size of the instance's data.
func grow(t *testing.T, b *Broker, size int64) {
	t.Helper()
	if err := os.MkdirAll(b.data(guid), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(b.data(guid) + "/table")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
}

// A binding that is created while the disk is full cannot write either.
func TestBindingOfAFullDisk(t *testing.T) {
	for _, e := range engines {
		r := record{Engine: e.name, Bindings: []string{"b"}, Secret: newSecret(), Full: true}
		text := e.bindStatements(r, "b")
		closed := strings.Contains(text, "read_only = on") || strings.Contains(text, "REVOKE INSERT")
		if closed != slices.Contains([]*engine{postgres, mariadb}, e) {
			t.Errorf("%s: %s", e.name, text)
		}
	}
}
