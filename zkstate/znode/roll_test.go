package znode

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/resource/job"
)

func TestProtobufRollBytesAreTheClassicOnes(t *testing.T) {
	got, err := EncodeRoll(job.Protobuf, []Worker{{ID: 0, IP: "10.0.0.1", Port: 9000}})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("00000011"+vector, hex.EncodeToString(got)); d != "" {
		t.Errorf("bytes (-want +got):\n%s", d)
	}
}

func TestTextRollBytesAreTheClassicOnes(t *testing.T) {
	got, err := EncodeRoll(job.Text, []Worker{
		{ID: 0, IP: "10.0.0.1", Port: 9000},
		{ID: 1, IP: "::1", Port: 9001, Node: Node{"10.1.0.1", "r7", "paris"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff("\n10.0.0.1,9000,0;null,null,null\n::1,9001,1;10.1.0.1,r7,paris", string(got)); d != "" {
		t.Errorf("text (-want +got):\n%s", d)
	}
}

// frame is one row of a protobuf roll.
func frame(t testing.TB, message string) string {
	m := unhex(t, message)
	return fmt.Sprintf("%08x%x", len(m), m)
}

func TestDecodeProtobufRoll(t *testing.T) {
	w := func(id int, ip string) Worker { return Worker{ID: id, IP: ip, Port: 1} }
	a, b := frame(t, "0800 1201 61 1801"), frame(t, "0801 1201 62 1801")
	for name, c := range map[string]struct {
		bytes    string
		workers  []Worker
		problems []string
	}{
		"complete":        {a + b, []Worker{w(0, "a"), w(1, "b")}, nil},
		"other_order":     {b + a, []Worker{w(1, "b"), w(0, "a")}, nil},
		"cut_in_message":  {a + b[:len(b)-2], []Worker{w(0, "a")}, []string{"row 2: it says 7 bytes and 6 follow"}},
		"cut_in_length":   {a + "0000", []Worker{w(0, "a")}, []string{"row 2: cut short within its length"}},
		"negative_length": {a + "ffffffff00", []Worker{w(0, "a")}, []string{"row 2: it says -1 bytes and 1 follow"}},
		"bad_message": {a + frame(t, "1205 61") + b, []Worker{w(0, "a"), w(1, "b")},
			[]string{"row 2: worker: it is no WorkerInfo message"}},
		"empty_message": {a + "00000000", []Worker{w(0, "a")}, []string{"row 2: it is empty"}},
		"no_id": {a + frame(t, "1201 62 1801") + frame(t, "08ffffffffffffffffff01 1201 63 1801"),
			[]Worker{w(0, "a"), w(NoID, "b"), w(NoID, "c")}, nil},
		"duplicates": {a + a + b, []Worker{w(0, "a"), w(0, "a"), w(1, "b")}, nil},
		"resources": {frame(t, "0800 1201 61 1801 2a02 1008") + frame(t, "0801 1201 62 1801 2a04 1008 3801"),
			[]Worker{w(0, "a"), w(1, "b")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			workers, problems := DecodeRoll(unhex(t, c.bytes))
			if d := cmp.Diff(c.workers, workers); d != "" {
				t.Errorf("workers (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.problems, problems); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeTextRoll(t *testing.T) {
	node := Node{"n", "r", "d"}
	w := func(id int, n Node) Worker { return Worker{ID: id, IP: "a", Port: 1 + id, Node: n} }
	for name, c := range map[string]struct {
		text     string
		workers  []Worker
		problems []string
	}{
		"leading_newline": {"\na,1,0;n,r,d\na,2,1;n,r,d", []Worker{w(0, node), w(1, node)}, nil},
		"no_newline":      {"a,1,0;n,r,d", []Worker{w(0, node)}, nil},
		"empty_lines":     {"\n\n\na,1,0;n,r,d\n\na,2,1;n,r,d\n\n", []Worker{w(0, node), w(1, node)}, nil},
		"nulls": {"\na,1,0;null,NULL,Null\na,2,1;n,null,d",
			[]Worker{w(0, Node{}), w(1, Node{IP: "n", Datacenter: "d"})}, nil},
		"short_node": {"\na,1,0;n,r", []Worker{w(0, Node{})},
			[]string{`row 1: no node: "n,r" is not nodeIP,rackName,datacenterName`}},
		"empty_node": {"\na,1,0;", []Worker{w(0, Node{})},
			[]string{`row 1: no node: "" is not nodeIP,rackName,datacenterName`}},
		"no_semicolon": {"\na,1,0", []Worker{w(0, Node{})},
			[]string{`row 1: no node: "" is not nodeIP,rackName,datacenterName`}},
		"node_not_utf8": {"\na,1,0;n,\xe9,d", []Worker{w(0, Node{})},
			[]string{`row 1: no node: worker: rack: "\xe9" is not UTF-8`}},
		"third_part": {"\na,1,0;n,r,d;x", []Worker{w(0, node)},
			[]string{`row 1: "x" after its second part was ignored`}},
		"bad_rows": {"\na,1\na,x,0;n,r,d\na,1,y;n,r,d\na,1,0;n,r,d\na,99999,2;n,r,d", []Worker{w(0, node)}, []string{
			`row 1: "a,1" is not ip,port,workerID`, `row 2: "x" is not a port`, `row 3: "y" is not an id`,
			"row 5: worker: port: 99999 is not between 0 and 65535",
		}},
		"no_id":     {"\na,1,-1;n,r,d", []Worker{{ID: NoID, IP: "a", Port: 1, Node: node}}, nil},
		"prototype": {"a:1=0;a:2=1;", []Worker{w(0, Node{}), w(1, Node{})}, nil},
		"control": {"\n\x1b[2J,1,0;n,r,d\na,1,0;n,r,d", []Worker{w(0, node)},
			[]string{`row 1: worker: ip: it may hold printable characters, not '\x1b'`}},
	} {
		t.Run(name, func(t *testing.T) {
			workers, problems := DecodeRoll([]byte(c.text))
			if d := cmp.Diff(c.workers, workers); d != "" {
				t.Errorf("workers (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.problems, problems); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

func TestRollWithoutWorkers(t *testing.T) {
	for body, wantProblem := range map[string]bool{
		"": false, "\n\n": false, "127.0.1.1": true, "{}": true, "\x00": true, "\x00\x00\x00\x00": true,
		"\x00\x00\x00\x07STARTED\x08\x01":   true,
		strings.Repeat("\na,1,0;", maxRoll): true,
	} {
		workers, problems := DecodeRoll([]byte(body))
		if workers != nil || (len(problems) > 0) != wantProblem {
			t.Errorf("%.40q: %d workers, problems %q", body, len(workers), problems)
		}
	}
}

func TestProblemsAreLimited(t *testing.T) {
	_, problems := DecodeRoll([]byte(strings.Repeat("\nx", maxRoll/2)))
	if len(problems) != maxOddities+1 || problems[maxOddities] != "and 524268 more" {
		t.Errorf("%d problems, the last %q", len(problems), problems[len(problems)-1])
	}
}

func TestRollOverTheLimitIsNotWritten(t *testing.T) {
	ws := make([]Worker, job.MaxWorkers)
	for i := range ws {
		ws[i] = Worker{ID: i, IP: "10.100.100.100", Port: 17000, Node: Node{IP: "10.100.100.200", Rack: "r"}}
	}
	for _, f := range []job.RollFormat{job.Protobuf, job.Text} {
		if _, err := EncodeRoll(f, ws); !errors.Is(err, ErrRollTooLarge) {
			t.Errorf("%s: %v, want ErrRollTooLarge", f, err)
		}
	}
}

func TestEncodeRollRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		format job.RollFormat
		w      Worker
	}{
		"unknown_format":    {"xml", Worker{}},
		"separator_in_text": {job.Text, Worker{Node: Node{Rack: "a,b"}}},
		"newline_in_text":   {job.Text, Worker{IP: "a\nb"}},
		"bad_worker":        {job.Protobuf, Worker{Port: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			if data, err := EncodeRoll(c.format, []Worker{c.w}); err == nil {
				t.Errorf("encoded as %q", data)
			}
		})
	}
}

func TestRollOfRandomWorkersIsReadAsWritten(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	text := func() string { return []string{"", "a", "::1", "10.0.0.1", "rack 7", "作業", "x=y:z"}[rnd.IntN(7)] }
	for range 200 {
		ws := make([]Worker, 1+rnd.IntN(30))
		for i := range ws {
			ws[i] = Worker{ID: rnd.IntN(40) - 1, IP: text(), Port: rnd.IntN(65536), Node: Node{text(), text(), text()}}
		}
		for _, f := range []job.RollFormat{job.Protobuf, job.Text} {
			if f == job.Protobuf {
				ws[0].Ports = map[string]int{text(): rnd.IntN(65536), "http": 80}
			} else {
				ws[0].Ports = nil
			}
			checkRoll(t, f, ws)
		}
	}
}

// checkRoll encodes and decodes ws.
func checkRoll(t *testing.T, f job.RollFormat, ws []Worker) {
	t.Helper()
	data, err := EncodeRoll(f, ws)
	if err != nil {
		t.Fatalf("%s of %+v: %v", f, ws, err)
	}
	back, problems := DecodeRoll(data)
	if d := cmp.Diff(ws, back, cmpopts.EquateEmpty()); d != "" || len(problems) > 0 {
		t.Fatalf("%s: problems %q; workers (-written +read):\n%s", f, problems, d)
	}
}

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

func TestIsCompanion(t *testing.T) {
	for path, want := range map[string]bool{
		"/r/a-lock": true, "/r/a-dai-for-barrier": true, "/r/a-job-master": true,
		"/r/a": false, "/r/ab-lock": false, "/r/a-lock/x": false, "/r/a-other": false,
		"/other/a-lock": false, "/precious": false,
	} {
		if got := IsCompanion(path, "/r/a"); got != want {
			t.Errorf("IsCompanion(%q) = %v", path, got)
		}
	}
}
