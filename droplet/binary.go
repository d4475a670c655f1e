package droplet

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"

	"github.com/dewrun/dew/droplet/archive"
	"github.com/dewrun/dew/droplet/pool"
	"github.com/dewrun/dew/droplet/stack"
)

// asPushed returns only the binary buildpack.
func asPushed() []chosen {
	return []chosen{{name: BinaryBuildpack, key: BinaryBuildpack, binary: true}}
}

// stageBinary creates a droplet from the files as they were pushed: the image has the
// bytes of the package. It needs no container, so it costs no more than the copy.
func (b *Builds) stageBinary(ctx context.Context, w Build, k Package, st stack.Stack) (Droplet, error) {
	f, done, err := b.packages.open(k.SHA256)
	if err != nil {
		return Droplet{}, err
	}
	defer done()
	downloaded(b, w.App, k)
	commands, err := readProcfile(f)
	if err != nil {
		return Droplet{}, err
	}
	logCommands(b.o.Say, w.App, commands)
	bindings, err := b.currentBindings(w.App)
	if err != nil {
		return Droplet{}, err
	}
	image, err := imageOf(f, k.SHA256, commands)
	if err != nil {
		return Droplet{}, err
	}
	image.bytes, image.fresh = archive.UntilDone(ctx, image.bytes), w.Fresh
	b.o.Say(w.App, "Uploading droplet...")
	if err := b.droplets.addNamed(image, built(b, Droplet{App: w.App, Stack: st.Name})); err != nil {
		return Droplet{}, err
	}
	uploaded(b, w.App, image.name)
	return Droplet{
		GUID: uuid.NewString(), App: w.App, Package: w.Package, Stack: st.Name, Image: image.name, Commands: commands,
		Buildpacks: []UsedBuildpack{{Name: BinaryBuildpack, GUID: builtInGUID(BinaryBuildpack), Version: b.o.Version}}, Reuse: b.reuseKey(k, st, asPushed(), stagingInput{}), Bindings: bindings,
	}, nil
}

// imageOf returns the tar of an image: the bytes of the package, then staging_info.yml.
// The name of the image is a checksum of the name of the package and of the end, so the
// package need not be read for it. If an image is composed in another way, the words in the
// checksum must change.
func imageOf(f *os.File, tree string, commands map[string]string) (namedImage, error) {
	fi, err := f.Stat()
	if err != nil {
		return namedImage{}, fmt.Errorf("cannot read package: %w", err)
	}
	tail, err := tailOf(commands)
	if err != nil {
		return namedImage{}, fmt.Errorf("cannot write %s: %w", archive.StagingInfo, err)
	}
	sum := sha256.Sum256(append([]byte("package "+tree+"\n"), tail...))
	bits := fi.Size() - archive.TarEnd
	return namedImage{
		name: hex.EncodeToString(sum[:]), size: bits + int64(len(tail)),
		bytes: io.MultiReader(io.NewSectionReader(f, 0, bits), bytes.NewReader(tail)),
	}, nil
}

// tailOf returns the end of the tar of an image: staging_info.yml and the end marker.
func tailOf(commands map[string]string) ([]byte, error) {
	info, err := json.Marshal(struct {
		Buildpack string `json:"detected_buildpack"`
		Command   string `json:"start_command"`
	}{"", commands["web"]})
	if err != nil {
		return nil, err
	}
	var tail bytes.Buffer
	w := tar.NewWriter(&tail)
	err = errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: archive.StagingInfo, Mode: 0o644, Size: int64(len(info)), ModTime: pool.Time}),
		archive.WriteAll(w, info), w.Close())
	return tail.Bytes(), err
}
