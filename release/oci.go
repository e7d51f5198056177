package main

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The documents of an image, as the Open Container Initiative specifies them (image-spec 1.1), and manifest.json of
// docker save, which older versions of docker read. A library for registries would be a hundred modules for these.
type imageConfig struct {
	User       string   `json:"User"`
	Env        []string `json:"Env"`
	Entrypoint []string `json:"Entrypoint"`
}

type ociConfig struct {
	Created      time.Time    `json:"created"`
	Architecture string       `json:"architecture"`
	OS           string       `json:"os"`
	Config       imageConfig  `json:"config"`
	RootFS       ociRootFS    `json:"rootfs"`
	History      []ociHistory `json:"history"`
}

type ociRootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type ociHistory struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

type ociDescriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *ociPlatform      `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type ociPlatform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type ociManifest struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     string          `json:"mediaType"`
	Config        ociDescriptor   `json:"config"`
	Layers        []ociDescriptor `json:"layers"`
}

type ociIndex struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     string          `json:"mediaType"`
	Manifests     []ociDescriptor `json:"manifests"`
}

type dockerManifest struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

// mediaType is that of a document or layer of an image.
func mediaType(name string) string { return "application/vnd.oci.image." + name }

// ociImage gathers the files of an image's archive.
type ociImage struct {
	time    time.Time
	headers map[string]*tar.Header
	bodies  map[string][]byte
	err     error
}

// ociArchive is an image as a file: an OCI layout, which is also what docker load reads.
func ociArchive(name, arch string, config imageConfig, entries []entry, at time.Time) ([]byte, error) {
	a := &ociImage{time: at, headers: make(map[string]*tar.Header), bodies: make(map[string][]byte)}
	layer, err := a.layer(entries)
	if err != nil {
		return nil, err
	}
	packed, err := compress(layer)
	if err != nil {
		return nil, err
	}
	packedLayer := a.blob(mediaType("layer.v1.tar+gzip"), packed)
	settings := a.document(mediaType("config.v1+json"), ociConfig{
		Created: at, Architecture: arch, OS: "linux", Config: config,
		RootFS:  ociRootFS{"layers", []string{digest(layer)}},
		History: []ociHistory{{at, "make image"}},
	})
	manifest := a.document(mediaType("manifest.v1+json"), ociManifest{
		SchemaVersion: 2, MediaType: mediaType("manifest.v1+json"), Config: settings, Layers: []ociDescriptor{packedLayer},
	})
	_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "" {
		return nil, fmt.Errorf("the name of the image, %q, has no tag, such as %s:latest", name, name)
	}
	manifest.Platform = &ociPlatform{arch, "linux"}
	manifest.Annotations = map[string]string{
		"io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag,
	}
	a.json("index.json", ociIndex{2, mediaType("index.v1+json"), []ociDescriptor{manifest}})
	a.json("oci-layout", map[string]string{"imageLayoutVersion": "1.0.0"})
	a.json("manifest.json", []dockerManifest{{blobName(settings.Digest), []string{name}, []string{
		blobName(packedLayer.Digest),
	}}})
	body, err := tarOf(a.headers, a.bodies, at)
	return body, errors.Join(a.err, err)
}

func digest(body []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(body)) }

func blobName(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }

func (a *ociImage) add(name string, body []byte) {
	a.headers[name] = &tar.Header{Name: name, Mode: 0o644, Size: int64(len(body))}
	a.bodies[name] = body
}

// blob adds what is named by its digest.
func (a *ociImage) blob(mediaType string, body []byte) ociDescriptor {
	d := ociDescriptor{MediaType: mediaType, Digest: digest(body), Size: len(body)}
	a.add(blobName(d.Digest), body)
	return d
}

func (a *ociImage) document(mediaType string, v any) ociDescriptor {
	return a.blob(mediaType, a.marshal(v))
}

func (a *ociImage) json(name string, v any) { a.add(name, a.marshal(v)) }

func (a *ociImage) marshal(v any) []byte {
	body, err := json.Marshal(v)
	a.err = cmp.Or(a.err, err)
	return body
}
