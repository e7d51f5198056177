package resource_test

import (
	"testing"

	"muster/resource"
)

func TestSizesAreWrittenShort(t *testing.T) {
	for text, want := range map[string]string{
		"256KiB": "256KiB", "1024KiB": "1MiB", "1048577B": "1048577B", "0B": "0B", "0GiB": "0B", "1GiB": "1GiB",
		"2048GiB": "2TiB", "1536MiB": "1536MiB",
	} {
		var s resource.Size
		if err := s.UnmarshalText([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if s.String() != want {
			t.Errorf("%s is written %s, want %s", text, s, want)
		}
	}
	for _, text := range []string{
		"", "B", "256", "256KB", "256 KiB", "256kib", "1.5GiB", "-1KiB", "+1KiB", "01KiB", "9999999999999GiB", "GiB",
	} {
		var s resource.Size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a size: %s", text, s)
		}
	}
}
