package delivery

import (
	"sync"
	"time"
)

// A mail server can take ten minutes for an answer. A mail that waits that long gives its
// slot to another mail. Mails to a domain with several slow mails wait for those, so that
// they do not take all slots from the mails to other domains.
const (
	// slowAfter is how long a mail can take before it is slow.
	slowAfter = 5 * time.Second
	// maxSlow is the number of slow mails beside those that have a slot.
	maxSlow = 30
	// maxSlowDomain is the number of slow mails to one domain.
	maxSlowDomain = 5
	// maxParked is the number of messages to slow domains that wait in memory; the
	// others are postponed on disk.
	maxParked = 200
)

// slowMails counts the mails that wait for a slow server.
type slowMails struct {
	mu      sync.Mutex // guards the fields below
	total   int
	domains map[string]int
}

func newSlowMails() *slowMails { return &slowMails{domains: map[string]int{}} }

// busy reports whether mails to a domain have to wait.
func (s *slowMails) busy(domain string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.domains[domain] >= maxSlowDomain
}

// watch calls release once the mail to a domain is slow, unless too many mails are. The
// caller calls finished after the mail.
func (s *slowMails) watch(domain string, release func()) (finished func()) {
	var timer *time.Timer
	var slow, done bool
	s.mu.Lock()
	defer s.mu.Unlock()
	timer = time.AfterFunc(slowAfter, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case done:
		case s.total >= maxSlow:
			timer.Reset(slowAfter)
		default:
			slow = true
			s.total++
			s.domains[domain]++
			release()
		}
	})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		done = true
		timer.Stop()
		if !slow {
			return
		}
		s.total--
		if s.domains[domain]--; s.domains[domain] == 0 {
			delete(s.domains, domain)
		}
	}
}
