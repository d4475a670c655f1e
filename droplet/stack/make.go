package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/store"
)

// makeTimeout is how long the making of one stack may take.
const makeTimeout = time.Hour

// Made is what came of the making of a stack.
type Made struct {
	Tree   []string
	Size   int64
	kind   Kind
	source string
	Done   func() // lets the layers go
}

// Begin remembers a stack that Run makes. Its progress is in what Kept returns.
func (s *Stacks) Begin(name string, from Source) (Record, error) {
	kind, source := KindDebian, ""
	switch {
	case from.Debian != nil && from.Image == nil:
		if err := from.Debian.check(); err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		source = strings.Join(from.Debian.Include, ",")
	case from.Image != nil && from.Debian == nil:
		if _, err := parseRef(from.Image.Ref); err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrRefused, err)
		}
		kind, source = KindImage, from.Image.Ref
	default:
		return Record{}, fmt.Errorf("%w: it is made either of Debian packages or of an image", ErrRefused)
	}
	k := Record{Name: name, Kind: kind, State: StateMaking, Source: source, Requested: &from}
	k, err := s.put(k)
	if err == nil {
		s.wakeRun()
	}
	return k, err
}

// MaxUpload is how large the file of a stack may be.
const MaxUpload = 8 << 30

// Upload takes in a file as Add does, from a stream.
func (s *Stacks) Upload(ctx context.Context, name string, r io.Reader) (Record, error) {
	if err := s.free(name); err != nil {
		return Record{}, err // before all of it came for nothing
	}
	f, err := os.CreateTemp(s.o.Dir, "upload-*"+archive.Unfinished)
	if err != nil {
		return Record{}, fmt.Errorf("cannot take in a stack: %w", err)
	}
	defer f.Close()
	// Without a name it goes with the daemon, whatever ends it.
	if err := os.Remove(f.Name()); err != nil {
		return Record{}, fmt.Errorf("cannot take in a stack: %w", err)
	}
	from := &spaceReader{r: archive.UntilDone(ctx, r), space: s.o.Space}
	if _, err := io.Copy(f, from); err != nil {
		return Record{}, fmt.Errorf("cannot take in a stack: %w", err)
	}
	return s.Add(ctx, name, f)
}

// Add makes a stack of a file: a tar of a root file system, or an image as docker
// and others save it, either of them perhaps compressed with gzip or zstd. What is
// refused is an *archive.Error.
func (s *Stacks) Add(ctx context.Context, name string, f *os.File) (Record, error) {
	if err := s.free(name); err != nil {
		return Record{}, err
	}
	m, err := s.readFile(ctx, f)
	if err != nil {
		return Record{}, err
	}
	defer m.Done()
	k := Record{Name: name, Kind: m.kind, Source: m.source}
	if err := s.finish(&k, m); err != nil {
		return Record{}, err
	}
	return s.put(k)
}

// finish writes down what came of the making.
func (s *Stacks) finish(k *Record, m Made) error {
	st, err := s.ofTree(k.Name, m.Tree)
	if err != nil {
		return err
	}
	k.State, k.ID, k.Tree, k.Size, k.Source = StateReady, st.ID, m.Tree, m.Size, m.source
	k.Requested, k.Error, k.Progress = nil, "", ""
	k.Description = describe(*k)
	return nil
}

func describe(k Record) string {
	switch k.Kind {
	case KindDebian:
		return strings.TrimSuffix("Debian, from this machine's apt sources, with "+k.Source, ", with ")
	case KindImage:
		return "The image " + k.Source
	}
	return "A root file system that was added"
}

// free tells whether a new stack may have the name.
func (s *Stacks) free(name string) error {
	switch {
	case s.stacks == nil:
		return fmt.Errorf("%w: this daemon keeps none", ErrRefused)
	case name == Default:
		return ErrOwn
	case PlatformName.MatchString(name):
		return fmt.Errorf("%w: the name '%s' stands for the stack '%s': choose another", ErrRefused, name, Default)
	case !stackName.MatchString(name):
		return fmt.Errorf("%w: %q is no name for a stack: use lower-case letters, digits, '.', '_' and '-'", ErrRefused, name)
	}
	old, err := s.ByName(name)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && old.State == StateFailed:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: '%s' (remove it with 'dew stack remove %s' first)", ErrTaken, name, name)
}

// put keeps a new stack. It takes the place of one that could not be made.
func (s *Stacks) put(k Record) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.free(k.Name); err != nil {
		return Record{}, err
	}
	if old, err := s.ByName(k.Name); err == nil {
		if err := s.stacks.Delete(old.GUID); err != nil {
			return Record{}, fmt.Errorf("cannot keep stack %s: %w", k.Name, err)
		}
	}
	k.GUID, k.CreatedAt = uuid.NewString(), time.Now().UTC()
	k.UpdatedAt = k.CreatedAt
	if err := s.stacks.Put(k.GUID, k); err != nil {
		return Record{}, fmt.Errorf("cannot keep stack %s: %w", k.Name, err)
	}
	return k, nil
}

// Remove forgets a stack. That no app needs it is for the caller to know.
func (s *Stacks) Remove(guid string) error {
	k, err := s.Kept(guid)
	if err != nil {
		return err
	}
	if k.Kind == KindHost {
		return ErrOwn
	}
	if k.State == StateMaking {
		return fmt.Errorf("%w: '%s': remove it when that has ended", ErrBusy, k.Name)
	}
	if err := s.stacks.Delete(guid); err != nil {
		return fmt.Errorf("cannot remove stack %s: %w", k.Name, err)
	}
	s.wakeRun() // to collect
	return nil
}

// errAbandoned cancels the making of a stack that nobody needs any more.
var errAbandoned = errors.New("the stack is no longer needed")

// underWayStack is a stack that is being made.
type underWayStack struct {
	guid   string
	cancel context.CancelCauseFunc
}

// Abandon stops the making of a stack that dew builds for service instances, and
// forgets the stack. A stack that a user asked for stays, and so does one that is
// ready.
func (s *Stacks) Abandon(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.ByName(name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if k.State != StateMaking || k.Requested == nil || !k.Requested.Service {
		return nil
	}
	if err := s.stacks.Delete(k.GUID); err != nil {
		return fmt.Errorf("cannot remove stack %s: %w", k.Name, err)
	}
	if s.making.guid == k.GUID {
		s.making.cancel(errAbandoned)
	}
	s.o.Logger.Info("stack abandoned", "name", k.Name)
	return nil
}

func (s *Stacks) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

// Run makes the stacks that Begin remembers, one after the other, until ctx ends;
// first those that an earlier daemon has not finished. Then it removes what no
// stack and no image needs any more. It returns an error only when the stacks cannot
// be read.
func (s *Stacks) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.makeAll(ctx); err != nil {
			return err
		}
		if err := s.collect(ctx); err != nil {
			s.o.Logger.Warn("cannot remove old stacks", "err", err)
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *Stacks) makeAll(ctx context.Context) error {
	all, err := s.stacks.All()
	if err != nil {
		return fmt.Errorf("cannot read stacks: %w", err)
	}
	all = slices.DeleteFunc(all, func(k Record) bool { return k.State != StateMaking })
	slices.SortFunc(all, func(a, b Record) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for _, k := range all {
		if err := s.makeOne(ctx, k); err != nil { // the others are none of its business
			s.o.Logger.Error("cannot write down what came of a stack: the next start makes it again", "stack", k.Name, "err", err)
		}
	}
	return nil
}

// begin notes which stack is being made, unless it was abandoned before its turn.
func (s *Stacks) begin(guid string, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.stacks.Get(guid); errors.Is(err, store.ErrNotFound) {
		return false
	}
	s.making = underWayStack{guid, cancel}
	return true
}

// makeOne makes one stack and writes down what came of it. One that ctx interrupts
// is left to the next daemon.
func (s *Stacks) makeOne(ctx context.Context, k Record) error {
	limited, stop := context.WithTimeoutCause(ctx, makeTimeout, fmt.Errorf("it took longer than %s", makeTimeout))
	defer stop()
	limited, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	if !s.begin(k.GUID, cancel) {
		return nil
	}
	say := func(line string) { s.say(k.GUID, line) }
	defer s.say(k.GUID, "")
	m, err := s.make(limited, k, say)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		defer m.Done()
		err = s.finish(&k, m)
	}
	if err != nil && !errors.Is(err, errAbandoned) {
		s.o.Logger.Warn("cannot make a stack", "stack", k.Name, "err", err)
		k.State, k.Error, k.Requested = StateFailed, err.Error(), nil
	}
	k.UpdatedAt = time.Now().UTC()
	_, err = s.stacks.Update(k.GUID, func(kept *Record) error { *kept = k; return nil })
	if errors.Is(err, store.ErrNotFound) {
		return nil // abandoned
	}
	if err != nil {
		return fmt.Errorf("cannot keep stack %s: %w", k.Name, err)
	}
	s.o.Logger.Info("stack", "name", k.Name, "state", k.State, "id", k.ID)
	return nil
}

func (s *Stacks) make(ctx context.Context, k Record, say func(string)) (Made, error) {
	switch {
	case k.Requested == nil:
		return Made{}, errors.New("nothing says what it is to be made of: remove it and add it again")
	case k.Requested.Debian != nil:
		return s.makeDebian(ctx, *k.Requested.Debian, say)
	}
	i, err := s.Pull(ctx, *k.Requested.Image, say)
	if err != nil {
		return Made{}, err
	}
	return s.takeImage(ctx, i, say)
}

// say shows the newest line of who makes a stack; empty: nobody does any more.
func (s *Stacks) say(guid, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == "" {
		delete(s.progress, guid)
		return
	}
	s.progress[guid] = line
}

// now shows how far a stack has come. It is not stored.
func (s *Stacks) now(k Record) Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.State == StateMaking {
		k.Progress = s.progress[k.GUID]
	}
	k.Requested = nil // it may hold a password
	return k
}

// KeepsImages tells whether stacks and images other than the host's are kept.
func (s *Stacks) KeepsImages() bool { return s.layers != nil }

// DropUnusedImages forgets the images that no droplet stands on. It asks for the stacks
// of all droplets under the lock: a build lets go of its image after its droplet is
// kept, so none is missed.
func (s *Stacks) DropUnusedImages(standing func() (map[string]bool, error)) error {
	all, err := s.images.All()
	if err != nil {
		return fmt.Errorf("cannot read images: %w", err)
	}
	if len(all) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	used, err := standing()
	if err != nil {
		return err
	}
	for _, k := range all {
		if s.inUse[k.Digest] > 0 || used[ImagePrefix+k.Digest] {
			continue
		}
		if err := s.images.Delete(k.Digest); err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("cannot remove image %.12s: %w", k.Digest, err)
		}
		s.wakeRun() // to collect
	}
	return nil
}

// collect removes the layers that no stack and no image needs, and what the
// engine has made of them.
func (s *Stacks) collect(ctx context.Context) error {
	own, err := s.fromHost()
	if err != nil {
		return err
	}
	ids := map[string]bool{own.ID: true}
	err = s.layers.collect(func() (map[string]bool, error) { return s.named(ids) })
	if err != nil {
		return err
	}
	if s.o.Prune != nil {
		s.o.Prune(ctx, func(id string) bool { return ids[id] })
	}
	return nil
}

// named returns the layers that stacks and images need, and notes the ids of
// those.
func (s *Stacks) named(ids map[string]bool) (map[string]bool, error) {
	stacks, err := s.stacks.All()
	if err != nil {
		return nil, err
	}
	images, err := s.images.All()
	if err != nil {
		return nil, err
	}
	named := map[string]bool{}
	for _, k := range stacks {
		ids[k.ID] = true
		for _, sha := range k.Tree {
			named[sha] = true
		}
	}
	for _, k := range images {
		for _, sha := range k.Tree {
			named[sha] = true
		}
		if st, err := s.ofImage(k.Digest); err == nil {
			ids[st.ID] = true
		}
	}
	return named, nil
}

// HoldImage keeps an image, and keeps it from being forgotten until releaseImage.
func (s *Stacks) HoldImage(k ImageRecord, build string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.images.Put(k.Digest, k); err != nil {
		return fmt.Errorf("cannot keep image %.12s: %w", k.Digest, err)
	}
	s.inUse[k.Digest]++
	s.held[build] = k.Digest
	return nil
}

// ReleaseImage lets go what a build has held.
func (s *Stacks) ReleaseImage(build string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest, ok := s.held[build]
	if !ok {
		return
	}
	delete(s.held, build)
	if s.inUse[digest]--; s.inUse[digest] == 0 {
		delete(s.inUse, digest)
	}
}
