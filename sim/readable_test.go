package sim

import "testing"

func TestReadable(t *testing.T) {
	for path, want := range map[string]string{
		"/jobs/j":                                   "/jobs/j",
		"/jobs/j/n/n-0000000001":                    "/jobs/j/n/n-0000000001",
		"/a/0123456789abcdef":                       "/a/<id>",
		"/a/x-0123456789abcdef0.2":                  "/a/x-<id>.2",
		"/a/0123456789abcde":                        "/a/0123456789abcde",
		"/a/aaaaaaaa-bbbb-cccc-dddd-eeeeffff0000/b": "/a/<id>/b",
		"/a/aaaaaaaa-bbbb-cccc-dddd-eeeeffff000":    "/a/aaaaaaaa-bbbb-cccc-dddd-eeeeffff000",
		"":                                          "",
	} {
		if got := readable(path); got != want {
			t.Errorf("%q becomes %q, not %q", path, got, want)
		}
	}
}
