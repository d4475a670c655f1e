package probe

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha1" //nolint:gosec // the API identifies files by SHA-1
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const onArchives = "Archives and uploads"

func archiveAttacks() []attack {
	a := func(name, want string, run func(w *target) (string, error)) attack {
		return attack{Probe{Group: onArchives, Name: name, Want: want}, run}
	}
	const refused = "status 422"
	return []attack{
		a("upload a package with paths outside of the app", refused, packages(
			entry{name: "../../etc/cron.d/x"}, entry{name: "/etc/passwd"}, entry{name: "a/../../x"}, entry{name: "a//../../x"}, entry{name: "./../x"})),
		a("upload a package with names that no file can have", refused, packages(entry{name: "a\x00b"}, entry{name: strings.Repeat("a", 5000)}, entry{name: strings.Repeat("d/", 3000) + "x"})),
		a("upload a package with links that lead outside", refused, packages(
			entry{name: "l", mode: fs.ModeSymlink | 0o777, data: "../../../../etc/shadow"}, entry{name: "l", mode: fs.ModeSymlink | 0o777, data: "/etc/shadow"}, entry{name: "a/l", mode: fs.ModeSymlink | 0o777, data: "../../x"})),
		a("write through a link of the same package", refused, linkThenFile),
		a("upload a package with devices, pipes and sockets", refused, packages(
			entry{name: "x", mode: fs.ModeDevice | 0o666}, entry{name: "x", mode: fs.ModeDevice | fs.ModeCharDevice | 0o666}, entry{name: "x", mode: fs.ModeNamedPipe | 0o666}, entry{name: "x", mode: fs.ModeSocket | 0o666})),
		a("upload a package with one name twice", refused, duplicateNames),
		a("upload a package whose header lies about its size", refused, falseSize),
		a("upload a package with more entries than the limit", refused, manyEntries),
		a("upload a package that unpacks to more than the limit", refused, bomb),
		a("upload a damaged archive", refused, damaged),
		a("claim a file of another space by its hash", "not matched, and status 422 for the upload", foreignHash),
		a("download a foreign package through a guessed secret", "status 404", guessedDownload),
		a("upload a droplet with paths and hard links outside of it", refused, droplets(
			tar.Header{Name: "app/../../../etc/cron.d/x", Typeflag: tar.TypeReg}, tar.Header{Name: "/etc/passwd", Typeflag: tar.TypeReg}, tar.Header{Name: "../x", Typeflag: tar.TypeReg},
			tar.Header{Name: "app/h", Typeflag: tar.TypeLink, Linkname: "../../../../etc/shadow"}, tar.Header{Name: "app/h", Typeflag: tar.TypeLink, Linkname: "/etc/shadow"})),
		a("upload a droplet with devices", refused, droplets(
			tar.Header{Name: "app/d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 1}, tar.Header{Name: "app/d", Typeflag: tar.TypeBlock, Devmajor: 8}, tar.Header{Name: "app/d", Typeflag: tar.TypeFifo})),
		a("write through a link of the same droplet", refused, dropletLinkThenFile),
		a("upload a droplet that unpacks to more than the limit", refused, dropletBomb),
		a("upload a stack with paths outside of its layer", "status 400 or 422, and nothing outside", stackSlip),
		a("upload a buildpack with paths outside of its folder", refused+", and nothing outside", buildpackSlip),
	}
}

// entry is one entry of a zip.
type entry struct {
	name string
	mode fs.FileMode
	data string
}

// zipped returns a zip with some entries.
func zipped(entries ...entry) ([]byte, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		if e.mode == 0 {
			e.mode = 0o644
		}
		h.SetMode(e.mode)
		f, err := z.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(f, e.data); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return b.Bytes(), err
}

// uploads sends files as a form. The form has matched resources if they are not empty.
func (w *target) uploads(token, path, resources string, bits []byte) (answer, error) {
	var form bytes.Buffer
	m := multipart.NewWriter(&form)
	if resources != "" {
		if err := m.WriteField("resources", resources); err != nil {
			return answer{}, err
		}
	}
	if bits != nil {
		part, err := m.CreateFormFile("bits", "x.zip")
		if err != nil {
			return answer{}, err
		}
		if _, err := part.Write(bits); err != nil {
			return answer{}, err
		}
	}
	if err := m.Close(); err != nil {
		return answer{}, err
	}
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.API+path, &form)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", m.FormDataContentType())
	r.Header.Set("Authorization", "bearer "+token)
	return send(r)
}

// create creates a resource and returns its guid.
func (w *target) create(token, path, body string) (string, error) {
	a, err := w.ask(token, http.MethodPost, path, body)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`"guid":\s*"([0-9a-f-]{36})"`).FindStringSubmatch(a.body)
	if a.status != http.StatusCreated || found == nil {
		return "", fmt.Errorf("%s: %s", path, a)
	}
	return found[1], nil
}

// upload uploads a zip to a new package of the attacker.
func (w *target) upload(resources string, bits []byte) (answer, string, error) {
	dev := w.developer().token
	guid, err := w.create(dev, "/v3/packages", fmt.Sprintf(`{"type":"bits","relationships":{"app":{"data":{"guid":%q}}}}`, w.attacker.app))
	if err != nil {
		return answer{}, "", err
	}
	a, err := w.uploads(dev, "/v3/packages/"+guid+"/upload", resources, bits)
	return a, guid, err
}

// refusedZip wants status 422 for a package.
func (w *target) refusedZip(bits []byte) (string, error) {
	a, _, err := w.upload("", bits)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusUnprocessableEntity {
		return a.String(), errors.New("the package is not refused")
	}
	return "422", nil
}

// packages uploads one package for each entry.
func packages(entries ...entry) func(w *target) (string, error) {
	return func(w *target) (string, error) {
		for _, e := range entries {
			bits, err := zipped(entry{name: "good", data: "x"}, e)
			if err != nil {
				return "", err
			}
			if seen, err := w.refusedZip(bits); err != nil {
				return seen, fmt.Errorf("%.60q: %w", e.name, err)
			}
		}
		good, err := zipped(entry{name: "good", data: "x"})
		if err != nil {
			return "", err
		}
		if a, _, err := w.upload("", good); err != nil || a.status != http.StatusOK {
			return a.String(), fmt.Errorf("a good package is refused, so the probe proves nothing: %w", err)
		}
		return fmt.Sprintf("422 for %d packages", len(entries)), nil
	}
}

func linkThenFile(w *target) (string, error) {
	bits, err := zipped(entry{name: "l", mode: fs.ModeSymlink | 0o777, data: "sub"}, entry{name: "l/x", data: "x"})
	if err != nil {
		return "", err
	}
	return w.refusedZip(bits)
}

func duplicateNames(w *target) (string, error) {
	bits, err := zipped(entry{name: "a", data: "x"}, entry{name: "a", data: "y"})
	if err != nil {
		return "", err
	}
	return w.refusedZip(bits)
}

func falseSize(w *target) (string, error) {
	bits, err := zipped(entry{name: "a", data: strings.Repeat("x", 1000)})
	if err != nil {
		return "", err
	}
	at := bytes.LastIndex(bits, []byte("PK\x01\x02"))
	copy(bits[at+24:], []byte{1, 0, 0, 0}) // the uncompressed size
	return w.refusedZip(bits)
}

func manyEntries(w *target) (string, error) {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for i := range 100_001 {
		if _, err := z.CreateRaw(&zip.FileHeader{Name: fmt.Sprint(i)}); err != nil {
			return "", err
		}
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return w.refusedZip(b.Bytes())
}

// bomb repeats the compressed form of a part, so that it need not be compressed.
func bomb(w *target) (string, error) {
	const part, times = 1 << 20, 1100
	var one bytes.Buffer
	f, err := flate.NewWriter(&one, flate.BestCompression)
	if err != nil {
		return "", err
	}
	if _, err := io.CopyN(f, zeros{}, part); err != nil {
		return "", err
	}
	if err := f.Flush(); err != nil {
		return "", err
	}
	data := bytes.Repeat(one.Bytes(), times)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	entry, err := z.CreateRaw(&zip.FileHeader{Name: "zeros", Method: zip.Deflate, CompressedSize64: uint64(len(data)), UncompressedSize64: part * times})
	if err != nil {
		return "", err
	}
	if _, err := entry.Write(data); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	return w.refusedZip(b.Bytes())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func damaged(w *target) (string, error) {
	good, err := zipped(entry{name: "a", data: strings.Repeat("text ", 1000)})
	if err != nil {
		return "", err
	}
	flipped := slices.Clone(good)
	flipped[40] ^= 0xff
	for _, bits := range [][]byte{[]byte("no zip"), good[:len(good)/2], flipped, {}} {
		if seen, err := w.refusedZip(bits); err != nil {
			return seen, err
		}
	}
	return "422 for 4 archives", nil
}

// foreignHash claims the file of the victim, of which the attacker knows only the hash.
func foreignHash(w *target) (string, error) {
	// Only the victim has this file. The hash is all that the attacker knows.
	secret := []byte(strings.Repeat(canary+" only in the package of the victim\n", 50))
	dev := w.insiders["SpaceDeveloper"].token
	guid, err := w.create(dev, "/v3/packages", fmt.Sprintf(`{"type":"bits","relationships":{"app":{"data":{"guid":%q}}}}`, w.victim.app))
	if err != nil {
		return "", err
	}
	bits, err := zipped(entry{name: "secret", data: string(secret)})
	if err != nil {
		return "", err
	}
	if a, err := w.uploads(dev, "/v3/packages/"+guid+"/upload", "", bits); err != nil || a.status != http.StatusOK {
		return a.String(), fmt.Errorf("cannot upload as the victim: %w", err)
	}
	sum := sha1.Sum(secret) //nolint:gosec // the API identifies files by SHA-1
	claim := fmt.Sprintf(`[{"path":"stolen","mode":"644","checksum":{"value":%q},"size_in_bytes":%d}]`, hex.EncodeToString(sum[:]), len(secret))
	match := func(token string) (answer, error) {
		return w.ask(token, http.MethodPost, "/v3/resource_matches", `{"resources":`+claim+`}`)
	}
	if a, err := match(dev); err != nil || !strings.Contains(a.body, "stolen") {
		return a.String(), fmt.Errorf("the victim cannot use the file again: %w", err)
	}
	for _, c := range w.outsiders {
		a, err := match(c.token)
		if err != nil {
			return "", err
		}
		if strings.Contains(a.body, "stolen") {
			return "matched", fmt.Errorf("%s learns that the file exists", c.name)
		}
	}
	a, guid, err := w.upload(claim, nil)
	if err != nil {
		return "", err
	}
	if a.status != http.StatusUnprocessableEntity {
		b, _ := w.ask(w.developer().token, http.MethodGet, "/v3/packages/"+guid+"/download", "")
		return a.String() + b.String(), errors.New("the attacker has the file")
	}
	return "not matched; 422", nil
}

func guessedDownload(w *target) (string, error) {
	var codes []int
	for _, secret := range []string{noSuch, w.victim.pkg, "x", "%2e%2e%2fkeys", strings.Repeat("a", 4000)} {
		a, err := w.ask("", http.MethodGet, "/dew/v1/downloads/"+secret, "")
		if err != nil {
			return "", err
		}
		codes = append(codes, a.status)
		if a.status != http.StatusNotFound {
			return a.String(), errors.New("a guessed secret works")
		}
	}
	return statuses(codes), nil
}

// tarball returns a compressed tar.
func tarball(headers ...tar.Header) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, h := range headers {
		data := ""
		if h.Typeflag == tar.TypeReg {
			data = "x"
		}
		h.Mode, h.Size = 0o755, int64(len(data))
		if err := t.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(t, data); err != nil {
			return nil, err
		}
	}
	err := errors.Join(t.Close(), z.Close())
	return b.Bytes(), err
}

// fill uploads a droplet of the attacker.
func (w *target) fill(bits []byte) (answer, error) {
	dev := w.developer().token
	guid, err := w.create(dev, "/v3/droplets", fmt.Sprintf(`{"process_types":{"web":"x"},"relationships":{"app":{"data":{"guid":%q}}}}`, w.attacker.app))
	if err != nil {
		return answer{}, err
	}
	return w.uploads(dev, "/v3/droplets/"+guid+"/upload", "", bits)
}

// baseDroplet is the part of a droplet that dew needs.
var baseDroplet = []tar.Header{{Name: "app/", Typeflag: tar.TypeDir}, {Name: "app/x", Typeflag: tar.TypeReg}}

func droplets(headers ...tar.Header) func(w *target) (string, error) {
	return func(w *target) (string, error) {
		for _, h := range headers {
			bits, err := tarball(append(slices.Clone(baseDroplet), h)...)
			if err != nil {
				return "", err
			}
			a, err := w.fill(bits)
			if err != nil {
				return "", err
			}
			if a.status != http.StatusUnprocessableEntity {
				return a.String(), fmt.Errorf("%s %s -> %s is not refused", string(h.Typeflag), h.Name, h.Linkname)
			}
		}
		good, err := tarball(baseDroplet...)
		if err != nil {
			return "", err
		}
		if a, err := w.fill(good); err != nil || a.status >= http.StatusBadRequest {
			return a.String(), fmt.Errorf("a good droplet is refused, so the probe proves nothing: %w", err)
		}
		return fmt.Sprintf("422 for %d droplets", len(headers)), nil
	}
}

func dropletLinkThenFile(w *target) (string, error) {
	bits, err := tarball(append(slices.Clone(baseDroplet), tar.Header{Name: "app/l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, tar.Header{Name: "app/l/cron.d", Typeflag: tar.TypeReg})...)
	if err != nil {
		return "", err
	}
	a, err := w.fill(bits)
	if err == nil && a.status != http.StatusUnprocessableEntity {
		err = errors.New("the droplet is not refused")
	}
	return fmt.Sprint(a.status), err
}

func dropletBomb(w *target) (string, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return "", err
	}
	t := tar.NewWriter(z)
	// The header promises more than dew allows. Nothing of it needs to follow.
	const size = 1 << 42
	if err := t.WriteHeader(&tar.Header{Name: "app/big", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
		return "", err
	}
	if _, err := io.CopyN(t, zeros{}, 1<<20); err != nil {
		return "", err
	}
	if err := z.Close(); err != nil {
		return "", err
	}
	a, err := w.fill(b.Bytes())
	if err == nil && a.status != http.StatusUnprocessableEntity {
		err = errors.New("the droplet is not refused")
	}
	return fmt.Sprint(a.status), err
}

// outside is the file that a hostile archive of an administrator tries to write.
func (w *target) outside() string { return filepath.Join(w.Dir, "escaped") }

func (w *target) nothingOutside() error {
	if _, err := os.Lstat(w.outside()); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("a file was written outside: %w", err)
	}
	return nil
}

func stackSlip(w *target) (string, error) {
	var codes []int
	up := strings.Repeat("../", 20) + strings.TrimPrefix(w.outside(), "/")
	for i, h := range []tar.Header{
		{Name: up, Typeflag: tar.TypeReg},
		{Name: "bin/../" + up, Typeflag: tar.TypeReg},
		{Name: "bin/h", Typeflag: tar.TypeLink, Linkname: strings.Repeat("../", 20) + "etc/shadow"},
	} {
		bits, err := tarball(tar.Header{Name: "bin/", Typeflag: tar.TypeDir}, h)
		if err != nil {
			return "", err
		}
		r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, fmt.Sprintf("http://%s/dew/v1/stacks/upload?name=evil%d", w.API, i), bytes.NewReader(bits))
		if err != nil {
			return "", err
		}
		r.Header.Set("Content-Type", "application/octet-stream")
		r.Header.Set("Authorization", "bearer "+w.admin)
		a, err := send(r)
		if err != nil {
			return "", err
		}
		codes = append(codes, a.status)
		if a.status != http.StatusUnprocessableEntity && a.status != http.StatusBadRequest {
			return a.String(), fmt.Errorf("%s is not refused", h.Name)
		}
	}
	return statuses(codes), w.nothingOutside()
}

func buildpackSlip(w *target) (string, error) {
	guid, err := w.create(w.admin, "/v3/buildpacks", `{"name":"evil"}`)
	if err != nil {
		return "", err
	}
	up := strings.Repeat("../", 20) + strings.TrimPrefix(w.outside(), "/")
	n := 0
	for _, e := range []entry{{name: up, data: "x"}, {name: "/etc/x"}, {name: "l", mode: fs.ModeSymlink | 0o777, data: "/etc/shadow"}} {
		bits, err := zipped(entry{name: "bin/compile", mode: 0o755, data: "#!/bin/sh\n"}, entry{name: "bin/detect", mode: 0o755, data: "#!/bin/sh\n"}, e)
		if err != nil {
			return "", err
		}
		for path, token := range map[string]string{"/v3/buildpacks/" + guid + "/upload": w.admin, "/dew/v1/spaces/" + w.attacker.space + "/buildpacks?name=evil": w.developer().token} {
			a, err := w.uploads(token, path, "", bits)
			if err != nil {
				return "", err
			}
			if a.status != http.StatusUnprocessableEntity {
				return a.String(), fmt.Errorf("%.40s is not refused at %s", e.name, path)
			}
			n++
		}
	}
	return fmt.Sprintf("422 for %d uploads", n), w.nothingOutside()
}

// listTar lists a compressed tar: name, kind, bits, and the start of each file.
func listTar(name string) ([]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var out []string
	for t := tar.NewReader(z); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		line := h.Name
		mode := h.FileInfo().Mode()
		if mode&fs.ModeSetuid != 0 {
			line += " setuid"
		}
		if mode&fs.ModeSetgid != 0 {
			line += " setgid"
		}
		if h.Typeflag == tar.TypeSymlink {
			line += " link"
		}
		b := make([]byte, 100)
		n, err := io.ReadFull(t, b)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		if strings.Contains(string(b[:n]), canary) {
			line += " " + canary
		}
		out = append(out, line)
	}
}
