package main

import (
	"encoding/json"
	"runtime/debug"
	"strings"
)

// The parts of a CycloneDX document that build information fills. It has no serial number and no time: both would make
// each one different. cyclonedx-gomod reads the same build information; it would be a program to fetch for one page of
// JSON, and says only more if it may ask the network for licences.
type bomDocument struct {
	Format       string          `json:"bomFormat"`
	Spec         string          `json:"specVersion"`
	Version      int             `json:"version"`
	Metadata     bomMetadata     `json:"metadata"`
	Components   []bomComponent  `json:"components"`
	Dependencies []bomDependency `json:"dependencies"`
}

type bomMetadata struct {
	Component bomComponent `json:"component"`
}

type bomComponent struct {
	Ref        string        `json:"bom-ref"`
	Type       string        `json:"type"`
	Name       string        `json:"name"`
	Version    string        `json:"version"`
	URL        string        `json:"purl,omitempty"`
	Properties []bomProperty `json:"properties,omitempty"`
}

type bomProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type bomDependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// bom lists what is linked into a binary, out of what the linker wrote into it: the modules with the checksums of
// go.sum, and the standard library.
func bom(b built) []byte {
	main := bomComponent{
		Ref: "muster", Type: "application", Name: "muster", Version: b.version,
		Properties: []bomProperty{{"go:platform", b.os + "/" + b.arch}},
	}
	for _, s := range b.info.Settings {
		if strings.HasPrefix(s.Key, "vcs.") {
			main.Properties = append(main.Properties, bomProperty{"go:" + s.Key, s.Value})
		}
	}
	modules := append([]*debug.Module{{Path: "std", Version: strings.TrimPrefix(b.info.GoVersion, "go")}}, b.info.Deps...)
	doc := bomDocument{
		Format: "CycloneDX", Spec: "1.5", Version: 1, Metadata: bomMetadata{main},
		Dependencies: []bomDependency{{Ref: main.Ref}},
	}
	for _, m := range modules {
		if m.Replace != nil {
			m = m.Replace
		}
		c := bomComponent{Type: "library", Name: m.Path, Version: m.Version}
		c.URL = "pkg:golang/" + m.Path + "@" + m.Version
		c.Ref = c.URL
		if m.Sum != "" {
			c.Properties = []bomProperty{{"go:sum", m.Sum}}
		}
		doc.Components = append(doc.Components, c)
		doc.Dependencies[0].DependsOn = append(doc.Dependencies[0].DependsOn, c.Ref)
	}
	out, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		panic(err) // of strings only
	}
	return append(out, '\n')
}
