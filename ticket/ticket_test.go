package ticket

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestTakeWorksOnce(t *testing.T) {
	s := New[int](3)
	secret := s.Issue("ann", 7, time.Minute)
	if got, ok := s.Get(secret); !ok || got != 7 {
		t.Errorf("Get = %d %t, want 7", got, ok)
	}
	if got, ok := s.Take(secret); !ok || got != 7 {
		t.Errorf("Take = %d %t, want 7", got, ok)
	}
	if _, ok := s.Take(secret); ok {
		t.Error("a secret was taken twice")
	}
	if _, ok := s.Get(secret); ok {
		t.Error("a taken secret is still valid")
	}
	for _, other := range []string{"", "x", secret + "x", secret[1:]} {
		if _, ok := s.Get(other); ok {
			t.Errorf("%q is valid", other)
		}
	}
}

func TestTakenByOne(t *testing.T) {
	s := New[int](1)
	secret := s.Issue("ann", 1, time.Minute)
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for range 50 {
		wg.Go(func() {
			if _, ok := s.Take(secret); ok {
				mu.Lock()
				taken++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if taken != 1 {
		t.Errorf("taken %d times, want once", taken)
	}
}

func TestExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New[int](3)
		early, late := s.Issue("ann", 1, time.Minute), s.Issue("ann", 2, time.Minute)
		time.Sleep(59 * time.Second)
		if _, ok := s.Take(early); !ok {
			t.Error("a ticket is not valid after 59 s")
		}
		time.Sleep(time.Second)
		if _, ok := s.Get(late); ok {
			t.Error("a ticket is valid after its lifetime")
		}
		if _, ok := s.Take(late); ok {
			t.Error("a ticket was taken after its lifetime")
		}
	})
}

// Many tickets of one owner replace the owner's oldest, and none of another owner.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New[int](2)
		other := s.Issue("bob", 0, time.Hour)
		var secrets []string
		for i := range 4 {
			secrets = append(secrets, s.Issue("ann", i, time.Hour))
			time.Sleep(time.Second)
		}
		for i, secret := range secrets {
			if _, ok := s.Get(secret); ok != (i >= 2) {
				t.Errorf("ticket %d is valid: %t", i, ok)
			}
		}
		if _, ok := s.Get(other); !ok {
			t.Error("tickets of one owner replaced those of another")
		}
		time.Sleep(time.Hour)
		s.Issue("ann", 0, time.Hour)
		if len(s.tickets) != 1 {
			t.Errorf("%d tickets, want that expired ones are deleted", len(s.tickets))
		}
	})
}
