package resource

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzMembers compares Members with package json.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"a":1}`, ` { "a" : "x\\\"}" , "b\u0041" : [1,{"c":"]"}] , "d" : { } , "e":null,"":-1.5e3}`, `{"a":1,"a":2}`,
		`[]`, `null`, `1`, `"a"`, `{`, ``, `{"a"}`, `{"a":1,}`, "{\"a\":\n[\t]\r}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want := map[string]json.RawMessage{}
		bad := json.Unmarshal(data, &want)
		ms, err := Members(data)
		if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
			if err == nil {
				t.Fatal("null is no object")
			}
			return
		}
		if (err == nil) != (bad == nil) {
			t.Fatalf("%q: %v, want %v", data, err, bad)
		}
		got := map[string]json.RawMessage{}
		for _, m := range ms {
			got[m.Key] = m.Value
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %v, want %v", data, got, want)
		}
		for key, value := range want {
			if !bytes.Equal(got[key], value) {
				t.Errorf("%q: %q is %q, want %q", data, key, got[key], value)
			}
		}
	})
}
