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

// createTimeout is the time limit for creating one stack.
const createTimeout = time.Hour

// NewTree is the result of creating a stack.
type NewTree struct {
	Tree   []string
	Size   int64
	kind   Kind
	source string
	Done   func() // unpins the layers
}

// Begin stores a stack that Run will create. Kept returns its progress.
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
		return Record{}, fmt.Errorf("%w: set either Debian packages or an image as its source", ErrRefused)
	}
	k := Record{Name: name, Kind: kind, State: StateMaking, Source: source, Requested: &from}
	k, err := s.put(k)
	if err == nil {
		s.wakeRun()
	}
	return k, err
}

// MaxUpload is the maximum size of the file of a stack.
const MaxUpload = 8 << 30

// Upload adds a stack from a stream, as Add does from a file.
func (s *Stacks) Upload(ctx context.Context, name string, r io.Reader) (Record, error) {
	if err := s.checkName(name); err != nil {
		return Record{}, err // before the whole upload is read
	}
	f, err := os.CreateTemp(s.o.Dir, "upload-*"+archive.Unfinished)
	if err != nil {
		return Record{}, fmt.Errorf("cannot store the uploaded stack: %w", err)
	}
	defer f.Close()
	// Without a name, the file disappears when the daemon stops for any reason.
	if err := os.Remove(f.Name()); err != nil {
		return Record{}, fmt.Errorf("cannot store the uploaded stack: %w", err)
	}
	from := &spaceReader{r: archive.UntilDone(ctx, r), space: s.o.Space}
	if _, err := io.Copy(f, from); err != nil {
		return Record{}, fmt.Errorf("cannot store the uploaded stack: %w", err)
	}
	return s.Add(ctx, name, f)
}

// Add creates a stack from a file: a tar of a root file system, or an image as docker
// and others save it. Both can be compressed with gzip or zstd. A refusal is an
// *archive.Error.
func (s *Stacks) Add(ctx context.Context, name string, f *os.File) (Record, error) {
	if err := s.checkName(name); err != nil {
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

// finish stores the result of creating a stack.
func (s *Stacks) finish(k *Record, m NewTree) error {
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

// checkName refuses a name that a new stack cannot have.
func (s *Stacks) checkName(name string) error {
	switch {
	case s.stacks == nil:
		return fmt.Errorf("%w: this dewd does not store stacks", ErrRefused)
	case name == Default:
		return ErrOwn
	case PlatformName.MatchString(name):
		return fmt.Errorf("%w: the name '%s' is an alias of stack '%s': choose another name", ErrRefused, name, Default)
	case !stackName.MatchString(name):
		return fmt.Errorf("%w: %q is not a valid name for a stack: use lower-case letters, digits, '.', '_' and '-'", ErrRefused, name)
	}
	old, err := s.ByName(name)
	switch {
	case errors.Is(err, ErrNotFound) || err == nil && old.State == StateFailed:
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: '%s' (choose another name, or remove the stack with 'dew stack remove %s')", ErrTaken, name, name)
}

// put stores a new stack. It replaces a stack of the same name that failed.
func (s *Stacks) put(k Record) (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkName(k.Name); err != nil {
		return Record{}, err
	}
	if old, err := s.ByName(k.Name); err == nil {
		if err := s.stacks.Delete(old.GUID); err != nil {
			return Record{}, fmt.Errorf("cannot store stack %s: %w", k.Name, err)
		}
	}
	k.GUID, k.CreatedAt = uuid.NewString(), time.Now().UTC()
	k.UpdatedAt = k.CreatedAt
	if err := s.stacks.Put(k.GUID, k); err != nil {
		return Record{}, fmt.Errorf("cannot store stack %s: %w", k.Name, err)
	}
	return k, nil
}

// Remove deletes a stack. The caller must check that no app needs it.
func (s *Stacks) Remove(guid string) error {
	k, err := s.ByGUID(guid)
	if err != nil {
		return err
	}
	if k.Kind == KindHost {
		return ErrOwn
	}
	if k.State == StateMaking {
		return fmt.Errorf("%w: '%s': remove it when 'dew stacks' shows it as ready or failed", ErrBusy, k.Name)
	}
	if err := s.stacks.Delete(guid); err != nil {
		return fmt.Errorf("cannot remove stack %s: %w", k.Name, err)
	}
	s.wakeRun() // to collect its layers
	return nil
}

// errAbandoned cancels the creation of a stack that is no longer needed.
var errAbandoned = errors.New("the stack is no longer needed")

// stackInProgress is a stack that is being created.
type stackInProgress struct {
	guid   string
	cancel context.CancelCauseFunc
}

// Abandon stops the creation of a stack that dew builds for service instances, and
// deletes the stack. A stack that a user requested stays, and so does one that is
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
	if s.creating.guid == k.GUID {
		s.creating.cancel(errAbandoned)
	}
	s.o.Logger.Info("stopped creating a stack that is no longer needed", "name", k.Name)
	return nil
}

func (s *Stacks) wakeRun() {
	select {
	case s.wake <- struct{}{}:
	default: // Run is awake already
	}
}

// Run creates the stacks that Begin stored, one after the other, until ctx is done. It
// starts with those that an earlier daemon did not finish. Then it removes layers that
// no stack and no image needs. It returns an error only if the stacks cannot be read.
func (s *Stacks) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.createAll(ctx); err != nil {
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

func (s *Stacks) createAll(ctx context.Context) error {
	all, err := s.stacks.All()
	if err != nil {
		return fmt.Errorf("cannot read stacks: %w", err)
	}
	all = slices.DeleteFunc(all, func(k Record) bool { return k.State != StateMaking })
	slices.SortFunc(all, func(a, b Record) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for _, k := range all {
		if err := s.createOne(ctx, k); err != nil { // the other stacks do not depend on it
			s.o.Logger.Error("cannot store the result of creating a stack: dewd creates the stack again after its next start", "stack", k.Name, "err", err)
		}
	}
	return nil
}

// begin notes which stack is being created, unless it was abandoned before.
func (s *Stacks) begin(guid string, cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.stacks.Get(guid); errors.Is(err, store.ErrNotFound) {
		return false
	}
	s.creating = stackInProgress{guid, cancel}
	return true
}

// createOne creates one stack and stores the result. If ctx interrupts it, the next
// daemon creates it.
func (s *Stacks) createOne(ctx context.Context, k Record) error {
	limited, stop := context.WithTimeoutCause(ctx, createTimeout, fmt.Errorf("creating the stack took longer than %s", createTimeout))
	defer stop()
	limited, cancel := context.WithCancelCause(limited)
	defer cancel(nil)
	if !s.begin(k.GUID, cancel) {
		return nil
	}
	say := func(line string) { s.setProgress(k.GUID, line) }
	defer s.setProgress(k.GUID, "")
	m, err := s.create(limited, k, say)
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		defer m.Done()
		err = s.finish(&k, m)
	}
	if err != nil && !errors.Is(err, errAbandoned) {
		s.o.Logger.Warn("cannot create a stack", "stack", k.Name, "err", err)
		k.State, k.Error, k.Requested = StateFailed, err.Error(), nil
	}
	k.UpdatedAt = time.Now().UTC()
	_, err = s.stacks.Update(k.GUID, func(kept *Record) error { *kept = k; return nil })
	if errors.Is(err, store.ErrNotFound) {
		return nil // it was abandoned
	}
	if err != nil {
		return fmt.Errorf("cannot store stack %s: %w", k.Name, err)
	}
	s.o.Logger.Info("stack", "name", k.Name, "state", k.State, "id", k.ID)
	return nil
}

func (s *Stacks) create(ctx context.Context, k Record, say func(string)) (NewTree, error) {
	switch {
	case k.Requested == nil:
		return NewTree{}, errors.New("the stack has no recorded source: remove the stack and add it again")
	case k.Requested.Debian != nil:
		return s.createDebian(ctx, *k.Requested.Debian, say)
	}
	i, err := s.Pull(ctx, *k.Requested.Image, say)
	if err != nil {
		return NewTree{}, err
	}
	return s.storeImage(ctx, i, say)
}

// setProgress sets the newest progress line of a stack. An empty line removes it.
func (s *Stacks) setProgress(guid, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if line == "" {
		delete(s.progress, guid)
		return
	}
	s.progress[guid] = line
}

// withProgress returns the stack with its progress, which is not stored.
func (s *Stacks) withProgress(k Record) Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.State == StateMaking {
		k.Progress = s.progress[k.GUID]
	}
	k.Requested = nil // it can contain a password
	return k
}

// StoresImages reports whether stacks and images other than the host's can be stored.
func (s *Stacks) StoresImages() bool { return s.layers != nil }

// DropUnusedImages deletes the images that no droplet uses. It reads the stacks of all
// droplets under the lock. A build releases its image after its droplet is stored, so
// none is missed.
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
		s.wakeRun() // to collect their layers
	}
	return nil
}

// collect removes the layers that no stack and no image needs, and the engine's data
// for them.
func (s *Stacks) collect(ctx context.Context) error {
	own, err := s.own()
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for _, k := range own {
		ids[k.ID] = true
	}
	err = s.layers.collect(func() (map[string]bool, error) { return s.usedLayers(ids) })
	if err != nil {
		return err
	}
	if s.o.Prune != nil {
		s.o.Prune(ctx, func(id string) bool { return ids[id] })
	}
	return nil
}

// usedLayers returns the layers that stacks and images need, and adds the IDs of these
// stacks and images to ids.
func (s *Stacks) usedLayers(ids map[string]bool) (map[string]bool, error) {
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

// HoldImage stores an image, and protects it from deletion until ReleaseImage.
func (s *Stacks) HoldImage(k ImageRecord, build string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.images.Put(k.Digest, k); err != nil {
		return fmt.Errorf("cannot store image %.12s: %w", k.Digest, err)
	}
	s.inUse[k.Digest]++
	s.heldBy[build] = k.Digest
	return nil
}

// ReleaseImage releases the image that a build has held.
func (s *Stacks) ReleaseImage(build string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	digest, ok := s.heldBy[build]
	if !ok {
		return
	}
	delete(s.heldBy, build)
	if s.inUse[digest]--; s.inUse[digest] == 0 {
		delete(s.inUse, digest)
	}
}
