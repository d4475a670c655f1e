package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// blob is a file of an OCI archive, named after its content.
type blob struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	content     []byte
}

func newBlob(mediaType string, content []byte) blob {
	return blob{MediaType: mediaType, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(content)), Size: len(content), content: content}
}

// writePauseImage writes the OCI archive of the image with the program pause.
func writePauseImage(program, archive string) error {
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	layer, err := tarOf([]tarFile{{"pause", 0o755, text}})
	if err != nil {
		return err
	}
	return writeImage(pauseImage, archive, layer, "/pause")
}

// writeStackImage writes the OCI archive of the image for tests from a tar archive of a
// root file system.
func writeStackImage(rootfs, archive string) error {
	layer, err := os.ReadFile(rootfs)
	if err != nil {
		return err
	}
	return writeImage(stackImage, archive, layer, "/bin/sh")
}

// writeImage writes an OCI archive with one layer.
func writeImage(name, archive string, layerTar []byte, entrypoint string) error {
	layer := newBlob("application/vnd.oci.image.layer.v1.tar", layerTar)
	config, err := jsonBlob("application/vnd.oci.image.config.v1+json", map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{entrypoint}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := jsonBlob("application/vnd.oci.image.manifest.v1+json", map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config, "layers": []blob{layer},
	})
	if err != nil {
		return err
	}
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": "1"}
	index, err := jsonBlob("", map[string]any{"schemaVersion": 2, "manifests": []blob{manifest}})
	if err != nil {
		return err
	}
	files := []tarFile{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", 0o644, index.content}}
	for _, b := range []blob{layer, config, manifest} {
		files = append(files, tarFile{filepath.Join("blobs/sha256", b.Digest[len("sha256:"):]), 0o644, b.content})
	}
	all, err := tarOf(files)
	if err != nil {
		return err
	}
	return os.WriteFile(archive, all, 0o644)
}

func jsonBlob(mediaType string, value any) (blob, error) {
	text, err := json.Marshal(value)
	return newBlob(mediaType, text), err
}

type tarFile struct {
	name    string
	mode    int64
	content []byte
}

func tarOf(files []tarFile) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
