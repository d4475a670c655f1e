package route

import (
	"net/http"
	"slices"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"github.com/dewrun/dew/app/routeoptions"
	"github.com/dewrun/dew/runtime"
)

// hashing selects instances by the value of a header (rendezvous hashing): each instance
// has a score for each value, and the highest score wins. An instance that is removed
// changes nothing for the values of the others, and a new one takes over only the values
// for which its score is the highest.
//
// The score depends on the process and the index of an instance. So a restarted instance
// gets its values again, even from another dewd.
type hashing struct {
	header  string  // empty: the route does not use it
	balance float64 // maximal requests of an instance, relative to the average; 0: any
}

func newHashing(options map[string]string) hashing {
	if options[routeoptions.Balancing] != routeoptions.Hash {
		return hashing{}
	}
	return hashing{options[routeoptions.HashHeader], routeoptions.Factor(options[routeoptions.HashBalance])}
}

// pickFor returns the next instance for a request with these headers that is not in
// tried. Without the header of the route's hashing, it is as if the route had none.
func (e *entry) pickFor(request http.Header, tried []*endpoint) (target, bool) {
	value := e.hash.value(request)
	if value == "" {
		return e.pick(tried)
	}
	var room [8]target
	return e.hash.pick(e.targets(room[:0]), tried, value)
}

// value returns the value of the header in a request. It is empty if the instance does
// not depend on it.
func (h hashing) value(request http.Header) string {
	if h.header == "" {
		return ""
	}
	return request.Get(h.header)
}

// pick returns the instance for a value that is not in tried. If it has too many
// requests in progress, the next one by score is used.
func (h hashing) pick(all []target, tried []*endpoint, value string) (picked target, ok bool) {
	key := xxhash.Sum64String(value)
	limit := h.limit(all)
	var best score
	free := false
	for _, t := range all {
		if slices.Contains(tried, t.endpoint) {
			continue
		}
		s, fits := scoreOf(key, t.endpoint), limit < 0 || float64(t.endpoint.exchanges.Load()) <= limit
		if better := s.above(best) && fits == free; !ok || better || fits && !free {
			picked, ok, best, free = t, true, s, fits
		}
	}
	return picked, ok
}

// limit returns the requests in progress above which an instance gets no other requests,
// or -1 if there is no limit.
func (h hashing) limit(all []target) float64 {
	if h.balance == 0 {
		return -1
	}
	var sum int32
	for _, t := range all {
		sum += t.endpoint.exchanges.Load()
	}
	return h.balance * float64(sum) / float64(len(all))
}

// score is the score of an instance for a value.
type score struct {
	place      uint64 // of the process and the index
	generation uint64 // during a deployment, two instances have the same index
}

func scoreOf(key uint64, e *endpoint) score {
	place := mix(key ^ e.place)
	return score{place, mix(place + uint64(e.slot.Generation+1)*0x9e3779b97f4a7c15)}
}

func (s score) above(o score) bool {
	if s.place != o.place {
		return s.place > o.place
	}
	return s.generation > o.generation
}

// placeOf returns the hash of the process and the index of a slot.
func placeOf(slot runtime.SlotID) uint64 {
	return xxhash.Sum64String(slot.Process + "\x00" + strconv.Itoa(slot.Index))
}

// mix is the finalizer of SplitMix64: every bit of x affects every bit of the result.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
