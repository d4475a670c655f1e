package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dewrun/dew/store"
)

// Default is the stack of apps that name none.
const Default = "host"

// ClusterDefault is the name of the default stack if the machine's own stack does not exist.
const ClusterDefault = "debian"

// packageDB changes whenever a package is installed on a Debian machine.
const packageDB = "/var/lib/dpkg/status"

// Kind is the origin of the files of a stack.
type Kind string

// The kinds of stacks.
const (
	KindHost    Kind = "host"    // the machine's own
	KindDebian  Kind = "debian"  // installed from the machine's apt sources
	KindTarball Kind = "tarball" // a root file system that a user packed
	KindImage   Kind = "image"   // pulled from a registry or imported
)

// State is the state of a stack's creation.
type State string

// The states of a stack.
const (
	StateMaking State = "PROCESSING"
	StateReady  State = "READY"
	StateFailed State = "FAILED"
)

// Errors that callers can check for.
var (
	ErrTaken = errors.New("a stack with this name already exists")
	ErrOwn   = errors.New("the stack '" + Default + "' is the operating system of this machine: it cannot be removed or replaced")
	ErrBusy  = errors.New("the stack is still being created")
	// ErrRefused says that the request for a stack is not valid.
	ErrRefused = errors.New("cannot add stack")
)

// Record is a stored stack.
type Record struct {
	GUID        string    `json:"guid"`
	Name        string    `json:"name"`
	Kind        Kind      `json:"kind"`
	State       State     `json:"state"`
	ID          string    `json:"id,omitempty"`       // changes with the content, empty until READY
	Size        int64     `json:"size,omitempty"`     // bytes of its files, unpacked
	Source      string    `json:"source,omitempty"`   // its origin, without secrets
	Progress    string    `json:"progress,omitempty"` // the newest progress line of its creation
	Error       string    `json:"error,omitempty"`    // reason why it is FAILED
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
	Description string    `json:"description,omitempty"`

	Tree      []string `json:"tree,omitempty"` // sha256 of its layers
	Requested *Source  `json:"wish,omitempty"` // what to create (nil after that)
	// Default says that apps use it that name no stack, or one of Cloud Foundry's. It is
	// not stored.
	Default bool `json:"-"`
}

// Source is the origin of a new stack: one of these.
type Source struct {
	Debian *DebianSource `json:"debian,omitempty"`
	Image  *ImageSource  `json:"image,omitempty"`
	// Service marks a stack that dew builds for service instances, without a user's
	// request.
	Service bool `json:"service,omitempty"`
}

// DebianSource requests a Debian system of the machine's own release.
type DebianSource struct {
	Include []string `json:"include,omitempty"` // packages in addition to the essential ones
}

// ImageSource names an image in a registry.
type ImageSource struct {
	Ref      string `json:"ref"` // host:port/repository:tag, or @sha256:…
	Username string `json:"username,omitempty"`
	Password string `json:"password,omitempty"`
}

// Options says where stacks are stored, and which user apps run as.
type Options struct {
	Host HostOptions
	// NoHost says that instances run on other machines, so the machine's own stack does
	// not exist.
	NoHost bool
	// Dir is the folder of trees. If it is empty, only the machine's own stack exists.
	Dir   string
	Space func() error // fails when the disk is almost full; nil: no check
	// Insecure are registries, as host:port, that can be used without TLS. Registries
	// on this machine's loopback always can.
	Insecure []string
	// Prune removes the engine's data of stacks that no longer exist. Nil means that
	// the engine has none.
	Prune  func(ctx context.Context, keep func(id string) bool)
	Logger *slog.Logger
}

// Stacks returns stacks by name, and stores the trees of all but the machine's own. It
// reads the machine's stack again when packages change, because a new toolchain can
// bring folders that instances need. Many goroutines can use it.
type Stacks struct {
	sources
	stacks store.Bucket[Record]
	images store.Bucket[ImageRecord]
	// access holds the access of the stacks, by guid.
	access store.Bucket[Access]

	wake chan struct{} // wakes Run

	mu       sync.Mutex        // guards the fields below
	read     time.Time         // time of the package database when have was created
	host     Stack             // the machine's stack
	progress map[string]string // by guid of a stack that is being created
	creating stackInProgress   // the stack that Run creates now
	inUse    map[string]int    // images by digest that builds work with
	heldBy   map[string]string // digests of these images by build
}

// sources reads the files of stacks into layers: from registries, from files of users, and
// from the machine's apt sources.
type sources struct {
	o      Options
	layers *layers // nil: only the machine's own stack exists
}

// New returns Stacks with only the machine's own stack.
func New(host HostOptions) *Stacks {
	return &Stacks{
		sources:  sources{o: Options{Host: host, Logger: slog.New(slog.DiscardHandler)}},
		progress: map[string]string{}, inUse: map[string]int{}, heldBy: map[string]string{},
	}
}

// Open opens the stacks in o.Dir, and creates the folder if necessary. A folder must
// have only one Stacks. Run creates the stacks that take a while.
func Open(db *store.DB, o Options) (*Stacks, error) {
	if o.Space == nil {
		o.Space = func() error { return nil }
	}
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	s := New(o.Host)
	if o.Dir == "" {
		return s, nil
	}
	s.o, s.wake = o, make(chan struct{}, 1)
	s.stacks = store.In(db, "stacks", store.Index("name", func(k Record) string { return k.Name }))
	s.images = store.In[ImageRecord](db, "images")
	s.access = store.In[Access](db, "stack-standings")
	var err error
	if s.layers, err = openLayers(db, o); err != nil {
		return nil, err
	}
	return s, nil
}

// Sweep tries again to remove files of unfinished stacks. It returns an error for each
// file or folder that it cannot remove.
func (s *Stacks) Sweep() error {
	if s.layers == nil {
		return nil
	}
	return s.layers.unfinished.Retry()
}

// GUID returns the guid of a built-in stack by its name. It never changes.
func GUID(name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("https://dew.run/stack/"+name)).String()
}

// Check refuses a name that does not stand for the default stack.
func Check(name string) error {
	if name == "" || name == Default || PlatformName.MatchString(name) {
		return nil
	}
	return fmt.Errorf("stack '%s' does not exist (use '%s')", name, Default)
}

// PlatformName matches the names of Cloud Foundry's stacks, which are aliases of the
// default stack.
var PlatformName = regexp.MustCompile(`^cflinuxfs[0-9]+$`)

// stackName matches valid names of stacks.
var stackName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// Check refuses a stack that an app cannot use. The error lists the usable ones.
func (s *Stacks) Check(name string) error {
	if Check(name) == nil {
		if s.o.NoHost && name != "" { // a buildpack without a stack works on every stack
			return s.checkDefault()
		}
		return nil
	}
	k, err := s.ByName(name)
	if errors.Is(err, ErrNotFound) {
		return s.unknown(name)
	}
	if err != nil {
		return err
	}
	return notReady(k)
}

func notReady(k Record) error {
	switch k.State {
	case StateMaking:
		return fmt.Errorf("the stack '%s' is still being created: try again when 'dew stacks' shows it as ready", k.Name)
	case StateFailed:
		return fmt.Errorf("dewd could not create stack '%s': %s", k.Name, k.Error)
	}
	return nil
}

// unknown returns the error for an unknown stack, with a list of the existing ones.
func (s *Stacks) unknown(name string) error {
	names, err := s.ready()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("stack '%s' does not exist (add it with 'dew stack add')", name)
	}
	return fmt.Errorf("stack '%s' does not exist (use %s, or add it with 'dew stack add')", name, strings.Join(names, " or "))
}

// DefaultName returns the name of the stack of apps that name none.
func (s *Stacks) DefaultName() string {
	if s.o.NoHost {
		return ClusterDefault
	}
	return Default
}

// checkDefault refuses the default stack if it is not the machine's own, and was not added.
func (s *Stacks) checkDefault() error {
	k, err := s.ByName(ClusterDefault)
	if err == nil {
		return notReady(k)
	}
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	names, err := s.ready()
	if err != nil {
		return err
	}
	other := ""
	if len(names) > 0 {
		other = ", or push the app with -s and " + strings.Join(names, " or ")
	}
	return fmt.Errorf("the stack '%s' does not exist, which apps in a cluster use by default: add it with 'dew stack add %s --image docker.io/library/debian:12'%s", ClusterDefault, ClusterDefault, other)
}

// ready returns the names of the usable stacks, in quotes.
func (s *Stacks) ready() (names []string, err error) {
	all, err := s.All()
	for _, k := range all {
		if k.State == StateReady {
			names = append(names, "'"+k.Name+"'")
		}
	}
	return names, err
}

// Get finds a stack. The stacks of Cloud Foundry are aliases of the default stack, so
// that a manifest with one of them runs unchanged.
func (s *Stacks) Get(name string) (Stack, error) {
	if Check(name) == nil && s.o.NoHost {
		if err := s.checkDefault(); err != nil {
			return Stack{}, err
		}
		name = ClusterDefault
	}
	if Check(name) == nil {
		return s.fromHost()
	}
	if digest, ok := strings.CutPrefix(name, ImagePrefix); ok {
		return s.ofImage(digest)
	}
	if err := s.Check(name); err != nil {
		return Stack{}, err
	}
	k, err := s.ByName(name)
	if err != nil {
		return Stack{}, err
	}
	return s.ofTree(k.Name, k.Tree)
}

// All returns all stacks, the machine's own first, then by name.
func (s *Stacks) All() ([]Record, error) {
	first, err := s.own()
	if err != nil || s.stacks == nil {
		return first, err
	}
	all, err := s.stacks.All()
	if err != nil {
		return nil, fmt.Errorf("cannot read stacks: %w", err)
	}
	for i := range all {
		all[i] = s.withProgress(all[i])
		all[i].Default = all[i].Name == s.DefaultName()
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Name, b.Name) })
	return append(first, all...), nil
}

// ByGUID returns the stack with a guid, or ErrNotFound.
func (s *Stacks) ByGUID(guid string) (Record, error) {
	if own, err := s.own(); guid == GUID(Default) && len(own) > 0 {
		return own[0], err
	}
	if s.stacks == nil {
		return Record{}, fmt.Errorf("stack %s: %w", guid, ErrNotFound)
	}
	k, err := s.stacks.Get(guid)
	if errors.Is(err, store.ErrNotFound) {
		return k, fmt.Errorf("stack %s: %w", guid, ErrNotFound)
	}
	if err != nil {
		return k, fmt.Errorf("cannot read stack %s: %w", guid, err)
	}
	k.Default = k.Name == s.DefaultName()
	return s.withProgress(k), nil
}

// own returns the record of the machine's stack, if it exists.
func (s *Stacks) own() ([]Record, error) {
	if s.o.NoHost {
		return nil, nil
	}
	st, err := s.fromHost()
	return []Record{{
		GUID: GUID(Default), Name: Default, Kind: KindHost, State: StateReady, ID: st.ID,
		Description: "The system of this machine, read-only", Default: true,
	}}, err
}

// ByName returns the stack with a name, or ErrNotFound.
func (s *Stacks) ByName(name string) (Record, error) {
	if s.stacks == nil {
		return Record{}, fmt.Errorf("stack %s: %w", name, ErrNotFound)
	}
	all, err := s.stacks.By("name", name)
	if err != nil {
		return Record{}, fmt.Errorf("cannot read stacks: %w", err)
	}
	if len(all) == 0 {
		return Record{}, fmt.Errorf("stack %s: %w", name, ErrNotFound)
	}
	return all[0], nil
}

func (s *Stacks) fromHost() (Stack, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed time.Time
	if fi, err := os.Stat(filepath.Join("/", s.o.Host.Root, packageDB)); err == nil {
		changed = fi.ModTime()
	}
	if s.host.ID != "" && changed.Equal(s.read) {
		return s.host, nil
	}
	st, err := FromHost(s.o.Host)
	if err != nil {
		return Stack{}, err
	}
	s.host, s.read = st, changed
	return st, nil
}
