package logs

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/dewrun/dew/auth"
)

// shards are the groups of streams that share their envelopes: each envelope is sent to
// one of the streams with the same shard id and the same query. A group belongs to one user or client, so
// that others cannot get its envelopes instead.
type shards struct {
	mu     sync.Mutex // guards groups
	groups map[string][]*shardMember
}

// shardMember is a stream in a group.
type shardMember struct {
	in    *shards
	group string // empty: it shares with no other stream
	name  string // selects its sources, if all members have one
}

// join adds a stream to its group.
func (s *shards) join(who auth.Principal, q gatewayQuery) *shardMember {
	m := &shardMember{in: s, name: q.name}
	if q.shard == "" {
		return m
	}
	m.group = fmt.Sprintf("%s\x00%s\x00%q %t %t %q", who.ID, q.shard, q.sources, q.log, q.tmr, q.gauges)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil {
		s.groups = map[string][]*shardMember{}
	}
	all := append(slices.Clone(s.groups[m.group]), m)
	slices.SortStableFunc(all, func(a, b *shardMember) int { return strings.Compare(a.name, b.name) })
	s.groups[m.group] = all
	return m
}

// leave removes a stream from its group.
func (s *shards) leave(m *shardMember) {
	if m.group == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(s.groups[m.group]), func(o *shardMember) bool { return o == m })
	if s.groups[m.group] = all; len(all) == 0 {
		delete(s.groups, m.group)
	}
}

// takes reports whether the stream gets envelope number n of a source. If all streams of
// the group have a name, all envelopes of a source go to the same one.
func (m *shardMember) takes(source string, n uint64) bool {
	if m.group == "" {
		return true
	}
	m.in.mu.Lock()
	all := m.in.groups[m.group] // never changed in place
	m.in.mu.Unlock()
	if len(all) < 2 {
		return true
	}
	if all[0].name != "" { // sorted by name
		n = 0
	}
	return all[(xxhash.Sum64String(source)+n)%uint64(len(all))] == m
}
