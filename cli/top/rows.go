package top

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dewrun/dew/api/v3"
)

// rowKey identifies a row from one answer of the daemon to the next.
type rowKey struct {
	app, process string
	index        int
	copy         int // during a deployment an old and a new instance can have the same index
	part         int // 0: the whole instance
}

// row is an instance, one of its processes, or an app without instances.
type row struct {
	key      rowKey
	app      *v3.LiveApp
	label    string           // name of the app, with its space and org if there are several
	instance *v3.LiveInstance // nil: the app has no instances
	part     *v3.LivePart     // nil: the whole instance
	last     bool             // the last process of its instance
}

// sortKey is a column that rows can be sorted by.
type sortKey struct {
	name    string // value of --sort
	compare func(a, b *v3.LiveInstance) int
}

// sortKeys are the sort columns in the order of the key s. The first one is the default:
// rows then keep their places.
var sortKeys = []sortKey{
	{name: "name"},
	{name: "cpu", compare: func(a, b *v3.LiveInstance) int { return cmp.Compare(b.CPU, a.CPU) }},
	{name: "memory", compare: func(a, b *v3.LiveInstance) int { return cmp.Compare(b.Mem, a.Mem) }},
	{name: "logs", compare: func(a, b *v3.LiveInstance) int { return cmp.Compare(b.LogRate, a.LogRate) }},
	{name: "requests", compare: func(a, b *v3.LiveInstance) int { return cmp.Compare(b.Requests, a.Requests) }},
	{name: "restarts", compare: func(a, b *v3.LiveInstance) int { return cmp.Compare(b.Restarts, a.Restarts) }},
}

// sortIndex is the position of the sort column with this name, or -1.
func sortIndex(name string) int {
	return slices.IndexFunc(sortKeys, func(k sortKey) bool { return k.name == name })
}

// listing says which rows are shown, and in which order.
type listing struct {
	filter   string // part of the label of an app, in lower case
	sort     int    // index in sortKeys
	reverse  bool
	expanded bool // with a row for each process
}

// rows are the rows of the apps that match the filter.
func (l listing) rows(apps []v3.LiveApp) []row {
	rows := l.sorted(instanceRows(apps, l.filter))
	if !l.expanded {
		return rows
	}
	n := len(rows)
	for _, r := range rows {
		if r.instance != nil {
			n += len(r.instance.Processes)
		}
	}
	all := make([]row, 0, n)
	for _, r := range rows {
		all = append(all, r)
		if r.instance == nil {
			continue
		}
		for i := range r.instance.Processes {
			p := r
			p.key.part, p.part, p.last = i+1, &r.instance.Processes[i], i == len(r.instance.Processes)-1
			all = append(all, p)
		}
	}
	return all
}

// instanceRows has one row for each instance, and one for each app without instances, in
// the order of the daemon.
func instanceRows(apps []v3.LiveApp, filter string) []row {
	label := labels(apps)
	rows := make([]row, 0, len(apps))
	for i := range apps {
		a := &apps[i]
		base := row{key: rowKey{app: a.GUID}, app: a, label: label(a)}
		if !strings.Contains(strings.ToLower(base.label), filter) {
			continue
		}
		if len(a.Instances) == 0 {
			rows = append(rows, base)
			continue
		}
		for j := range a.Instances {
			r := base
			r.instance = &a.Instances[j]
			r.key.process, r.key.index = r.instance.Type, r.instance.Index
			if j > 0 && rows[len(rows)-1].sameIndex(r) {
				r.key.copy = rows[len(rows)-1].key.copy + 1
			}
			rows = append(rows, r)
		}
	}
	return rows
}

func (r row) sameIndex(other row) bool {
	return r.key.process == other.key.process && r.key.index == other.key.index
}

// labels returns the function that names an app. The name has the space and the org if
// the apps have several of them.
func labels(apps []v3.LiveApp) func(*v3.LiveApp) string {
	spaces, orgs := false, false
	for i := range apps {
		spaces = spaces || apps[i].Space.GUID != apps[0].Space.GUID
		orgs = orgs || apps[i].Space.OrgGUID != apps[0].Space.OrgGUID
	}
	return func(a *v3.LiveApp) string {
		switch {
		case orgs:
			return clean(a.Space.OrgName + "/" + a.Space.Name + "/" + a.Name)
		case spaces:
			return clean(a.Space.Name + "/" + a.Name)
		}
		return clean(a.Name)
	}
}

// sorted sorts rows of instances. Apps without instances come last, except by name. Equal
// rows keep the order of the daemon.
func (l listing) sorted(rows []row) []row {
	by := sortKeys[l.sort].compare
	if by == nil {
		if l.reverse {
			slices.Reverse(rows)
		}
		return rows
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		switch {
		case a.instance == nil || b.instance == nil:
			return cmp.Compare(rank(a), rank(b))
		case l.reverse:
			return by(b.instance, a.instance)
		}
		return by(a.instance, b.instance)
	})
	return rows
}

func rank(r row) int {
	if r.instance == nil {
		return 1
	}
	return 0
}

// totals are the sums of the apps that are shown.
type totals struct {
	apps, wanted, running, crashed int
	cpu                            float64
	mem, limits                    int64
}

func totalsOf(apps []v3.LiveApp) totals {
	t := totals{apps: len(apps)}
	for i := range apps {
		for j := range apps[i].Instances {
			in := &apps[i].Instances[j]
			if apps[i].State == v3.AppStarted {
				t.wanted++
			}
			switch in.State {
			case v3.StateRunning:
				t.running++
				t.limits += in.MemQuota
			case v3.StateCrashed:
				t.crashed++
			}
			t.cpu += in.CPU
			t.mem += in.Mem
		}
	}
	return t
}
