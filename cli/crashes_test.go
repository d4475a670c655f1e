package cli

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/dewrun/dew/api/v3"
)

// smallPage is the page size of the fake daemon for crashes, whatever the request says.
const smallPage = 7

// pageOfCrashes responds as dewd does, with small pages.
func pageOfCrashes(r *http.Request, all []v3.Crash) v3.Crashes {
	number := func(name string) int {
		n, err := strconv.Atoi(r.FormValue(name))
		if err != nil {
			return 1
		}
		return n
	}
	page, size := number("page"), min(number("per_page"), smallPage)
	from := min((page-1)*size, len(all))
	to := min(from+size, len(all))
	out := v3.Crashes{Pagination: v3.Pagination{TotalResults: len(all)}, Crashes: all[from:to]}
	if to < len(all) {
		q := r.URL.Query()
		q.Set("page", strconv.Itoa(page+1))
		out.Pagination.Next = &v3.Link{Href: "http://elsewhere" + r.URL.Path + "?" + q.Encode()}
	}
	return out
}

// The table shows the newest crashes and how many there are. JSON output contains all
// of them, from all pages.
func TestCrashesCount(t *testing.T) {
	t.Parallel()
	d := newDaemon(t).withApp(v3.AppStarted)
	for i := range 25 {
		d.crashes = append(d.crashes, v3.Crash{Type: "web", Index: i, Description: "exited"})
	}
	for _, tt := range []struct {
		args string
		want int
	}{
		{"", 10},
		{"-n 3", 3},
		{"--count 12", 12},
		{"-n 0", 25},
		{"--all", 25},
		{"-n 100", 25},
		{"--json", 25},
		{"--json -n 3", 3},
		{"--json -n 0", 25},
		{"--json --all", 25},
		{"--json -n 8", 8},
	} {
		r := d.dew(append([]string{"crashes", "shop"}, strings.Fields(tt.args)...)...)
		r.must(t, 0)
		got := strings.Count(r.out, "web/")
		if strings.Contains(tt.args, "--json") {
			var list []v3.Crash
			if err := json.Unmarshal([]byte(r.out), &list); err != nil {
				t.Fatalf("%s: %v in %s", tt.args, err, r.out)
			}
			got = len(list)
		} else if told := strings.Contains(r.talk, " of 25 records"); told != (tt.want < 25) {
			t.Errorf("%s: stderr = %q, want the total where not all are shown", tt.args, r.talk)
		}
		if got != tt.want {
			t.Errorf("dew crashes %s: %d records, want %d", tt.args, got, tt.want)
		}
	}
	d.dew("crashes", "shop", "-n", "-1").must(t, 2, "-n: -1 is less than 0")
	d.dew("crashes", "shop", "-n", "1", "--all").must(t, 2, "--all")
}
