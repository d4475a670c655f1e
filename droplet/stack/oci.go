package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/dewrun/dew/droplet/archive"
)

// RegistryError is the reason why an image cannot be fetched from a registry.
type RegistryError struct {
	Ref    string // without secrets
	Reason string // a sentence that says what to do
}

func (e *RegistryError) Error() string {
	return fmt.Sprintf("cannot get image %s: %s", e.Ref, e.Reason)
}

// Time limits for a registry, and the maximum size of an image's metadata.
const (
	registryDial    = 10 * time.Second
	registryAnswer  = 30 * time.Second
	maxLayers       = 128
	maxImageConfig  = 1 << 20
	maxRefLength    = 512
	maxLayerTries   = 3
	registryRetries = 2
)

// Image is an image that was found. Its layers are fetched one by one.
type Image struct {
	source string // its origin, without secrets
	ref    string // empty: it is from a file
	Digest v1.Hash
	image  v1.Image
	config v1.ConfigFile
}

// parseRef parses an image reference.
func parseRef(ref string) (name.Reference, error) {
	if len(ref) > maxRefLength || strings.Contains(ref, "://") {
		return nil, fmt.Errorf("image %q must have the form [host[:port]/]repository[:tag] or [host[:port]/]repository@sha256:…", shorten(ref))
	}
	r, err := name.ParseReference(ref)
	if err != nil {
		return nil, fmt.Errorf("image %q must have the form [host[:port]/]repository[:tag] or [host[:port]/]repository@sha256:…: %w", shorten(ref), err)
	}
	return r, nil
}

func shorten(s string) string { return s[:min(len(s), maxRefLength)] }

// CheckImageRef refuses an invalid image reference.
func CheckImageRef(ref string) error {
	_, err := parseRef(ref)
	return err
}

// Pull finds an image in its registry. It does not fetch the layers yet.
func (s *sources) Pull(ctx context.Context, from ImageSource, say func(string)) (Image, error) {
	ref, err := parseRef(from.Ref)
	if err != nil {
		return Image{}, err
	}
	host := ref.Context().RegistryStr()
	if slices.Contains(s.o.Insecure, host) || isLoopback((&url.URL{Host: host}).Hostname()) { // TLS is tried first
		if ref, err = name.ParseReference(from.Ref, name.Insecure); err != nil {
			return Image{}, err
		}
	}
	auth := authn.Anonymous
	if from.Username != "" || from.Password != "" {
		auth = &authn.Basic{Username: from.Username, Password: from.Password}
	}
	say("Asking " + host + " for " + from.Ref)
	image, err := remote.Image(ref, remote.WithContext(ctx), remote.WithAuth(auth), remote.WithTransport(s.registryTransport()),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: goruntime.GOARCH}), remote.WithUserAgent("dew"),
		remote.WithRetryBackoff(remote.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Steps: registryRetries}))
	if err != nil {
		return Image{}, registryError(from, host, err)
	}
	i, err := s.openImage(image)
	if err != nil {
		return i, registryError(from, host, err)
	}
	i.source, i.ref = from.Ref, from.Ref
	return i, nil
}

// registryTransport connects to registries. It refuses registries of other machines
// without TLS, because anyone on the network could read passwords or change programs.
func (s *sources) registryTransport() http.RoundTripper {
	dialer := &net.Dialer{Timeout: registryDial}
	return &guardedTransport{insecure: s.o.Insecure, base: &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: registryDial, ResponseHeaderTimeout: registryAnswer, IdleConnTimeout: registryAnswer,
		MaxIdleConns: 4, MaxResponseHeaderBytes: 1 << 20,
	}}
}

type guardedTransport struct {
	base     http.RoundTripper
	insecure []string
}

var errPlainHTTP = errors.New("dewd uses registries without TLS only on this machine, or if --insecure-registry lists them")

func (g *guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !isLoopback(r.URL.Hostname()) && !slices.Contains(g.insecure, r.URL.Host) {
		return nil, errPlainHTTP
	}
	return g.base.RoundTrip(r)
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// registryError describes an error of a registry or of the connection in one sentence.
func registryError(from ImageSource, host string, err error) error {
	out := &RegistryError{Ref: from.Ref}
	var answer *transport.Error
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &answer):
		out.Reason = answerReason(answer, from, host)
	case errors.Is(err, errPlainHTTP) || errors.Is(err, http.ErrSchemeMismatch):
		out.Reason = fmt.Sprintf("the registry %s does not use TLS: %v", host, errPlainHTTP)
	case errors.As(err, &dns):
		out.Reason = fmt.Sprintf("the host name of registry %s cannot be resolved (%v)", host, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		out.Reason = fmt.Sprintf("the registry %s refuses connections: check that it is running", host)
	case errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH):
		out.Reason = fmt.Sprintf("cannot connect to registry %s: the network is unreachable", host)
	case errors.As(err, &timeout) && timeout.Timeout():
		out.Reason = fmt.Sprintf("the registry %s does not respond", host)
	case isWrongDigest(err):
		out.Reason = fmt.Sprintf("the data that registry %s sent does not match its digest: %v", host, err)
	default:
		out.Reason = err.Error()
	}
	return out
}

func answerReason(answer *transport.Error, from ImageSource, host string) string {
	code := func(c transport.ErrorCode) bool {
		return slices.ContainsFunc(answer.Errors, func(d transport.Diagnostic) bool { return d.Code == c })
	}
	switch {
	case (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden) && from.Username == "":
		return fmt.Sprintf("the image does not exist in registry %s, or the registry needs a user name and a password (--docker-username and CF_DOCKER_PASSWORD)", host)
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		return fmt.Sprintf("the registry %s refuses user '%s' with this password", host, from.Username)
	case code(transport.ManifestUnknownErrorCode) || code(transport.NameUnknownErrorCode) || answer.StatusCode == http.StatusNotFound:
		return fmt.Sprintf("the image does not exist in registry %s: check its name, and its tag or digest", host)
	case answer.StatusCode == http.StatusTooManyRequests:
		return fmt.Sprintf("the registry %s refuses more requests because of its rate limit: try again later", host)
	}
	return fmt.Sprintf("the registry %s responded with status %d", host, answer.StatusCode)
}

// errDigest says that the bytes do not match the digest.
var errDigest = errors.New("wrong digest")

func isWrongDigest(err error) bool {
	return errors.Is(err, errDigest) || strings.Contains(err.Error(), "error verifying")
}

// openImage reads the manifest and the configuration of an image.
func (s *sources) openImage(image v1.Image) (Image, error) {
	i := Image{image: image}
	m, err := image.Manifest()
	if err != nil {
		return i, err
	}
	if len(m.Layers) == 0 || len(m.Layers) > maxLayers {
		return i, &archive.Error{Reason: fmt.Sprintf("has %d layers (1 to %d are supported)", len(m.Layers), maxLayers)}
	}
	if m.Config.Size < 0 || m.Config.Size > maxImageConfig { // a negative size would disable the limit
		return i, &archive.Error{Reason: fmt.Sprintf("has a configuration of more than %s", archive.Size(maxImageConfig))}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return i, err
	}
	i.config = *config
	if i.Digest, err = image.Digest(); err != nil {
		return i, err
	}
	if config.OS != "" && config.OS != "linux" || config.Architecture != "" && config.Architecture != goruntime.GOARCH {
		return i, &archive.Error{Reason: fmt.Sprintf("is for %s/%s, but this machine runs linux/%s", config.OS, config.Architecture, goruntime.GOARCH)}
	}
	return i, nil
}

// storeImage stores the layers of an image that are not stored yet.
func (s *sources) storeImage(ctx context.Context, i Image, say func(string)) (NewTree, error) {
	m, _, err := s.StoreLayers(ctx, i, say)
	return m, err
}

// StoreLayers stores the layers of an image, and also returns the users in the image.
func (s *sources) StoreLayers(ctx context.Context, i Image, say func(string)) (NewTree, Users, error) {
	all, err := i.image.Layers()
	if err != nil {
		return NewTree{}, Users{}, err
	}
	m := NewTree{kind: KindImage, source: i.source}
	var pins []func()
	m.Done = func() {
		for _, done := range pins {
			done()
		}
	}
	var who Users
	for n, l := range all {
		sha, facts, done, err := s.storeLayer(ctx, l, func(size int64) {
			say(fmt.Sprintf("Layer %d of %d, %s", n+1, len(all), archive.Size(size)))
		})
		if err != nil {
			m.Done()
			if i.ref == "" {
				return NewTree{}, who, err
			}
			ref, _ := parseRef(i.ref) // it was parsed before
			return NewTree{}, who, registryError(ImageSource{Ref: i.ref}, ref.Context().RegistryStr(), err)
		}
		pins = append(pins, done)
		m.Tree = append(m.Tree, sha)
		if m.Size += facts.Size; m.Size > maxTreeBytes {
			m.Done()
			return NewTree{}, who, &archive.Error{Reason: fmt.Sprintf("is larger than %s after unpacking", archive.Size(maxTreeBytes))}
		}
		who.addLayer(facts)
	}
	return m, who, nil
}

// storeLayer stores one layer, and retries if the connection breaks.
func (s *sources) storeLayer(ctx context.Context, l v1.Layer, say func(size int64)) (sha string, facts layerFacts, done func(), err error) {
	want, err := l.Digest()
	if err != nil {
		return "", facts, nil, err
	}
	done = s.layers.pin(want.Hex) // pin it first, because it can be collected at any time
	if facts, ok := s.layers.has(want.Hex); ok {
		return want.Hex, facts, done, nil
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	size, err := l.Size()
	if err != nil {
		return "", facts, nil, err
	}
	say(size)
	for try := 1; ; try++ {
		sha, facts, err = s.fetchLayer(ctx, l, want)
		if err == nil || try == maxLayerTries || ctx.Err() != nil || !errors.Is(err, io.ErrUnexpectedEOF) {
			return sha, facts, done, err
		}
	}
}

func (s *sources) fetchLayer(ctx context.Context, l v1.Layer, want v1.Hash) (string, layerFacts, error) {
	r, err := l.Compressed()
	if err != nil {
		return "", layerFacts{}, err
	}
	defer r.Close()
	sha, facts, done, err := s.layers.add(ctx, r)
	if err != nil {
		return "", facts, err
	}
	defer done() // the caller has pinned it
	if want.Algorithm != "sha256" || sha != want.Hex {
		return "", facts, fmt.Errorf("%w: expected %s, got sha256:%s", errDigest, want, sha)
	}
	return sha, facts, nil
}
