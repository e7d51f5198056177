package znode

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const uuid = "0f8fad5b-d9cb-469f-a165-70867728950e"

func TestStripProtectedNeedsAllThreeParts(t *testing.T) {
	for name, want := range map[string]string{
		"_c_" + uuid + "-10.0.0.1:9000":             "10.0.0.1:9000",
		"_c_" + uuid + "-lock-0000000001":           "lock-0000000001",
		"_c_" + uuid + "-":                          "",
		"_c_" + uuid:                                "_c_" + uuid,
		"_c_" + uuid + "_x":                         "_c_" + uuid + "_x",
		"_d_" + uuid + "-x":                         "_d_" + uuid + "-x",
		"_c_" + uuid[1:] + "0x-x":                   "_c_" + uuid[1:] + "0x-x",
		"_c_0f8fad5bxd9cb-469f-a165-70867728950e-x": "_c_0f8fad5bxd9cb-469f-a165-70867728950e-x",
		"10.0.0.1:9000":                             "10.0.0.1:9000",
		"":                                          "",
	} {
		got, stripped := StripProtected(name)
		if got != want || stripped != (got != name) {
			t.Errorf("%q: %q, %v, want %q", name, got, stripped, want)
		}
	}
}

func TestCompanions(t *testing.T) {
	for name, c := range map[string]struct {
		names, jobs []string
		want        map[string][]string
	}{
		"all_of_a_classic_job": {
			names: []string{"x-lock", "x", "x-barrier", "x-dai-for-worker-id", "x-dai-for-barrier", "x-dai",
				"x-job-master", "y"},
			want: map[string][]string{
				"x": {"x-barrier", "x-dai", "x-dai-for-barrier", "x-dai-for-worker-id", "x-job-master", "x-lock"},
			},
		},
		"job_named_like_a_companion": {names: []string{"x", "x-lock"}, jobs: []string{"x-lock"},
			want: map[string][]string{}},
		"companion_of_a_job_named_like_one": {
			names: []string{"x", "x-lock", "x-lock-lock"}, jobs: []string{"x-lock"},
			want: map[string][]string{"x-lock": {"x-lock-lock"}},
		},
		"left_behind_for_a_declared_job": {names: []string{"x-dai-for-worker-id"}, jobs: []string{"x"},
			want: map[string][]string{"x": {"x-dai-for-worker-id"}}},
		"left_behind_by_nobody": {names: []string{"x-dai-for-worker-id", "-lock"},
			want: map[string][]string{}},
		"companions_have_no_companions": {names: []string{"x", "x-lock", "x-lock-lock"},
			want: map[string][]string{"x": {"x-lock"}}},
		"two_ways_to_read_a_suffix": {names: []string{"x-dai-for", "x-dai-for-barrier"},
			want: map[string][]string{"x-dai-for": {"x-dai-for-barrier"}}},
		"the_longer_suffix_first": {names: []string{"x", "x-dai-for", "x-dai-for-barrier"},
			want: map[string][]string{"x": {"x-dai-for-barrier"}}},
	} {
		t.Run(name, func(t *testing.T) {
			isJob := func(n string) bool {
				for _, j := range c.jobs {
					if j == n {
						return true
					}
				}
				return false
			}
			if d := cmp.Diff(c.want, Companions(c.names, isJob)); d != "" {
				t.Errorf("companions (-want +got):\n%s", d)
			}
		})
	}
}

func TestLooksClassic(t *testing.T) {
	roll := string(unhex(t, "00000011"+vector))
	for name, c := range map[string]struct {
		body     string
		children []string
		want     bool
	}{
		"protobuf_roll":        {body: roll, want: true},
		"text_roll":            {body: "\n10.0.0.1,9000,0;null,null,null", want: true},
		"prototype_roll":       {body: "10.0.0.1:9000=0;", want: true},
		"cut_short_roll":       {body: roll + "\x00\x00", want: true},
		"protected_child":      {children: []string{"_c_" + uuid + "-10.0.0.1:9000"}, want: true},
		"plain_child":          {children: []string{"other", "localhost:1234"}, want: true},
		"nothing":              {},
		"other_children":       {children: []string{"config", "a:b", ":80", "a:0", "a:65536", "_c_" + uuid + "-7"}},
		"body_that_is_no_roll": {body: "10.0.0.1", children: []string{"10.0.0.1:9000"}},
		"json":                 {body: `{"a":1,"b":2,"c":3}`},
		"later_generation": {body: "\x00\x00\x00\x07STARTED\x0a\x04etl1",
			children: []string{"workers-pers-state", "events"}},
		"rows_without_a_worker": {body: "\x00\x00\x00\x02\x08\x01"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := LooksClassic([]byte(c.body), c.children); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
