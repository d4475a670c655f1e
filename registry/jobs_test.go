package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dewrun/dew/app"
	"github.com/dewrun/dew/store"
)

// newJobs returns jobs and a function that runs them until it is called again.
func newJobs(t *testing.T, db *store.DB) (js *Jobs, run func() (stop func())) {
	t.Helper()
	js = NewJobs(db, slog.New(slog.DiscardHandler))
	return js, func() func() {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- js.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run = %v", err)
			}
		}
	}
}

func TestJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, run := newJobs(t, openDB(t))
		js.Handle("greet", func(_ context.Context, j app.Job) ([]string, error) {
			var name string
			if err := json.Unmarshal(j.Args, &name); err != nil {
				return nil, err
			}
			time.Sleep(time.Second)
			if name == "nobody" {
				return []string{"careful"}, errors.New("cannot greet nobody")
			}
			return []string{"hello " + name}, nil
		})
		early := one[app.Job](t)(js.Start("greet", "early"))
		if early.GUID == "" || early.State != app.JobProcessing || early.CreatedAt.IsZero() {
			t.Errorf("started = %+v", early)
		}
		if diff := cmp.Diff(one[app.Job](t)(js.Get(early.GUID)), early); diff != "" {
			t.Errorf("kept (-got +want):\n%s", diff)
		}
		defer run()()
		synctest.Wait()
		late := one[app.Job](t)(js.Start("greet", "late"))
		bad := one[app.Job](t)(js.Start("greet", "nobody"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for guid, want := range map[string]string{
			early.GUID: "COMPLETE [hello early] []",
			late.GUID:  "COMPLETE [hello late] []",
			bad.GUID:   "FAILED [careful] [{10001 CF-UnknownError cannot greet nobody}]",
		} {
			j := one[app.Job](t)(js.Get(guid))
			if got := fmt.Sprintf("%s %v %v", j.State, j.Warnings, j.Errors); got != want {
				t.Errorf("job = %s, want %s", got, want)
			}
			if j.Args != nil {
				t.Errorf("an ended job keeps its arguments: %s", j.Args)
			}
			if !j.UpdatedAt.After(j.CreatedAt) {
				t.Errorf("job = %+v, want the time of its end", j)
			}
		}
		if _, err := js.Start("unknown", nil); err == nil {
			t.Error("started what nothing does")
		}
		if _, err := js.Start("greet", func() {}); err == nil {
			t.Error("started with arguments that cannot be written")
		}
		if _, err := js.Get("none"); !errors.Is(err, app.ErrNotFound) {
			t.Errorf("no job: %v, want ErrNotFound", err)
		}
	})
}

// A job that is interrupted because the daemon stops has not failed: the next daemon
// runs it again.
func TestJobsResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t)
		js, run := newJobs(t, db)
		js.Handle("wait", func(ctx context.Context, _ app.Job) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		js.Handle("finish", func(ctx context.Context, _ app.Job) ([]string, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // Run waits for it
			return nil, nil
		})
		j := one[app.Job](t)(js.Start("wait", 1))
		gone := one[app.Job](t)(js.Start("finish", 1))
		stop := run()
		synctest.Wait()
		stop()
		if got := one[app.Job](t)(js.Get(j.GUID)); got.State != app.JobProcessing {
			t.Errorf("state = %s, want %s", got.State, app.JobProcessing)
		}
		if got := one[app.Job](t)(js.Get(gone.GUID)); got.State != app.JobComplete {
			t.Errorf("state = %s, want %s", got.State, app.JobComplete)
		}

		next, run := newJobs(t, db)
		var done []string
		next.Handle("wait", func(_ context.Context, j app.Job) ([]string, error) {
			done = append(done, string(j.Args))
			return nil, nil
		})
		defer run()()
		synctest.Wait()
		if got := one[app.Job](t)(next.Get(j.GUID)); got.State != app.JobComplete || !cmp.Equal(done, []string{"1"}) {
			t.Errorf("state = %s after %v, want %s", got.State, done, app.JobComplete)
		}
	})
}

// A job without a handler fails, and a job that panics fails, without affecting other
// jobs.
func TestJobsFailAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t)
		old, _ := newJobs(t, db)
		nothing := func(context.Context, app.Job) ([]string, error) { return nil, nil }
		old.Handle("old", nothing)
		lost := one[app.Job](t)(old.Start("old", nil))

		js, run := newJobs(t, db)
		js.Handle("panic", func(context.Context, app.Job) ([]string, error) { panic("bug") })
		js.Handle("fine", nothing)
		broken := one[app.Job](t)(js.Start("panic", nil))
		fine := one[app.Job](t)(js.Start("fine", nil))
		defer run()()
		synctest.Wait()
		for guid, want := range map[string]app.JobState{lost.GUID: app.JobFailed, broken.GUID: app.JobFailed, fine.GUID: app.JobComplete} {
			j := one[app.Job](t)(js.Get(guid))
			if j.State != want || (want == app.JobFailed) != (len(j.Errors) == 1 && j.Errors[0].Detail != "") {
				t.Errorf("job = %+v, want %s", j, want)
			}
		}
	})
}

// Many jobs run a few at a time, and all of them finish.
func TestJobsAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, run := newJobs(t, openDB(t))
		now, most := 0, 0
		lock := make(chan struct{}, 1)
		count := func(n int) {
			lock <- struct{}{}
			now += n
			most = max(most, now)
			<-lock
		}
		js.Handle("x", func(context.Context, app.Job) ([]string, error) {
			count(1)
			defer count(-1)
			time.Sleep(time.Second)
			return nil, nil
		})
		var jobs []app.Job
		for range 3*jobsAtATime + 1 {
			jobs = append(jobs, one[app.Job](t)(js.Start("x", nil)))
		}
		defer run()()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for _, j := range jobs {
			if got := one[app.Job](t)(js.Get(j.GUID)); got.State != app.JobComplete {
				t.Errorf("state = %s, want %s", got.State, app.JobComplete)
			}
		}
		if most != jobsAtATime {
			t.Errorf("%d at a time, want %d", most, jobsAtATime)
		}
	})
}

// If the store is closed, Run returns, and it cancels functions that wait for ctx.
func TestJobsWithoutStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openDB(t)
		js, _ := newJobs(t, db)
		js.Handle("wait", func(ctx context.Context, _ app.Job) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		one[app.Job](t)(js.Start("wait", nil))
		done := make(chan error, 1)
		go func() { done <- js.Run(t.Context()) }()
		synctest.Wait()
		must(t, db.Close())
		if err := <-done; !errors.Is(err, store.ErrClosed) {
			t.Errorf("Run = %v, want ErrClosed", err)
		}
	})
}

func TestEndedJobsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		js, run := newJobs(t, openDB(t))
		js.Handle("x", func(context.Context, app.Job) ([]string, error) { return nil, nil })
		js.Handle("long", func(ctx context.Context, _ app.Job) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		j := one[app.Job](t)(js.Start("x", nil))
		long := one[app.Job](t)(js.Start("long", nil))
		defer run()()
		time.Sleep(jobAge - time.Minute)
		one[app.Job](t)(js.Get(j.GUID))
		time.Sleep(2 * jobSweep)
		synctest.Wait()
		if _, err := js.Get(j.GUID); !errors.Is(err, app.ErrNotFound) {
			t.Errorf("ended job: %v, want ErrNotFound", err)
		}
		one[app.Job](t)(js.Get(long.GUID)) // it is still running
	})
}

func TestJobErrors(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want []app.JobError
	}{
		"own":      {fmt.Errorf("x: %w", &app.JobError{Code: 1, Title: "CF-X", Detail: "d"}), []app.JobError{{Code: 1, Title: "CF-X", Detail: "d"}}},
		"manifest": {errors.Join(&app.ManifestError{App: "a", Key: "k", Line: 2, Message: "m"}, &app.ManifestError{Message: "n"}), []app.JobError{{Code: 10008, Title: "CF-UnprocessableEntity", Detail: `app "a", line 2: k: m`}, {Code: 10008, Title: "CF-UnprocessableEntity", Detail: "n"}}},
		"invalid":  {&app.Invalid{Key: "k", Message: "m"}, []app.JobError{{Code: 10008, Title: "CF-UnprocessableEntity", Detail: "k: m"}}},
		"missing":  {fmt.Errorf("app x: %w", app.ErrNotFound), []app.JobError{{Code: 10010, Title: "CF-ResourceNotFound", Detail: "app x: not found"}}},
		"other":    {errors.New("x"), []app.JobError{{Code: 10001, Title: "CF-UnknownError", Detail: "x"}}},
	} {
		if diff := cmp.Diff(jobErrors(tt.err), tt.want); diff != "" {
			t.Errorf("%s (-got +want):\n%s", name, diff)
		}
	}
}
