package znode

import (
	"encoding/hex"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/resource/job"
)

// vector is a WorkerInfo encoded by hand from the field numbers: id 0, ip 10.0.0.1, port 9000, an empty NodeInfo.
const vector = "0800" + "120831302e302e302e31" + "18a846" + "2200"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWorkerBytesAreTheClassicOnes(t *testing.T) {
	got, err := EncodeWorker(Worker{ID: 0, IP: "10.0.0.1", Port: 9000})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(vector, hex.EncodeToString(got)); d != "" {
		t.Errorf("bytes (-want +got):\n%s", d)
	}
}

func TestDecodeWorker(t *testing.T) {
	for name, c := range map[string]struct {
		bytes string
		want  Worker
	}{
		"hand_made_vector": {vector, Worker{ID: 0, IP: "10.0.0.1", Port: 9000}},
		"no_id":            {"1201 61 1801", Worker{ID: NoID, IP: "a", Port: 1}},
		"id_minus_one":     {"08ffffffffffffffffff01 1201 61 1801", Worker{ID: NoID, IP: "a", Port: 1}},
		"node": {"0801 1201 61 1801 2209 0a01 62 1201 63 1a01 64",
			Worker{ID: 1, IP: "a", Port: 1, Node: Node{"b", "c", "d"}}},
		"first_resource": {"0801 1201 61 1801 2a0d 09 000000000000f03f 1008 3001", Worker{ID: 1, IP: "a", Port: 1}},
		"later_resource": {"0801 1201 61 1801 2a0f 09 000000000000f03f 1008 3001 3801",
			Worker{ID: 1, IP: "a", Port: 1}},
		"additional_ports": {"0801 1201 61 1801 3206 0a02 7570 1002",
			Worker{ID: 1, IP: "a", Port: 1, Ports: map[string]int{"up": 2}}},
		"unknown_field": {"0801 1201 61 1801 ba0603 787878", Worker{ID: 1, IP: "a", Port: 1}},
		"empty":         {"", Worker{ID: NoID}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := DecodeWorker(unhex(t, c.bytes))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("worker (-want +got):\n%s", d)
			}
		})
	}
}

func TestDecodeWorkerRefuses(t *testing.T) {
	for name, c := range map[string]struct{ bytes, want string }{
		"cut_short":         {"0801 1205 61", "no WorkerInfo"},
		"wrong_type":        {"0a0100", ""}, // the id as bytes is an unknown field: it reads as no id
		"port_too_high":     {"0801 18ffffff7f", "is not between 0 and 65535"},
		"port_negative":     {"18ffffffffffffffffff01", "-1 is not between"},
		"control_character": {"1204 1b5b326a", `'\x1b'`},
		"not_utf8":          {"1201ff", "is not UTF-8"},
		"extra_port_high":   {"3207 0a01 78 10ffff7f", `port "x": 2097151`},
		"extra_port_name":   {"3206 0a02 1b5b 1002", `'\x1b'`},
		"rack_control":      {"2204 1202 0a61", `'\n'`},
		"extra_ports":       {extraPorts(maxPorts + 1), "101 additional ports are more than the 100 allowed"},
		"too_long":          {hex.EncodeToString(make([]byte, maxWorker+1)), "more than the 16384 allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := DecodeWorker(unhex(t, c.bytes))
			if c.want == "" {
				if d := cmp.Diff(Worker{ID: NoID}, w); err != nil || d != "" {
					t.Errorf("%v, worker (-want +got):\n%s", err, d)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// extraPorts encodes so many additional ports, each called by one or two bytes.
func extraPorts(n int) string {
	var data []byte
	for i := range n {
		data = appendBytes(data, 6, appendNumber(appendBytes(nil, 1, []byte(strconv.Itoa(i))), 2, i))
	}
	return hex.EncodeToString(data)
}

func TestEncodeWorkerRefusesWhatDecodeWould(t *testing.T) {
	for name, w := range map[string]Worker{
		"id":       {ID: -2},
		"id_high":  {ID: 1 << 31},
		"ip":       {IP: "10.0.0.1\n"},
		"ip_long":  {IP: strings.Repeat("x", maxField+1)},
		"port":     {Port: 65536},
		"rack":     {Node: Node{Rack: "\xff"}},
		"ports":    {Ports: manyPorts(maxPorts + 1)},
		"too_many": {Ports: longPorts(maxPorts)},
	} {
		t.Run(name, func(t *testing.T) {
			if data, err := EncodeWorker(w); err == nil {
				t.Errorf("encoded as %x", data)
			}
		})
	}
}

func manyPorts(n int) map[string]int {
	ports := map[string]int{}
	for i := range n {
		ports[strings.Repeat("p", 1+i%200)+string(rune('a'+i/200))] = i
	}
	return ports
}

// longPorts are so many ports of more than 200 bytes each.
func longPorts(n int) map[string]int {
	ports := map[string]int{}
	for i := range n {
		ports[strings.Repeat("p", 200)+strconv.Itoa(i)] = i
	}
	return ports
}

func TestCheckPlace(t *testing.T) {
	for s, want := range map[string]string{
		"r7": "", "eu-1/r7": "", "a=b": "", "Zürich": "", strings.Repeat("x", maxPlace): "",
		"":                                "must not be empty",
		strings.Repeat("x", maxPlace+1):   "has 65 bytes; at most 64 are allowed",
		strings.Repeat("ü", maxPlace/2+1): "has 66 bytes; at most 64 are allowed",
		"a b":                             "except a space, ',' and ';', not ' '",
		"a,b":                             "not ','",
		"a;b":                             "not ';'",
		"a\nb":                            `not '\n'`,
		"\x1b[1m":                         `not '\x1b'`,
		"a\u202eb":                        `not '\u202e'`,
		"a\u00a0b":                        `not '\u00a0'`,
		"\xff":                            "must be UTF-8",
		"NULL":                            `"NULL" stands for none in a text roll`,
	} {
		err := CheckPlace(s)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", s, err, want)
		}
		if want != "" {
			continue
		}
		row, err := EncodeRoll(job.Text, []Worker{{ID: 0, IP: "a", Port: 1, Node: Node{Rack: s, Datacenter: s}}})
		if err != nil {
			t.Fatal(err)
		}
		if ws, odd := DecodeRoll(row); len(odd) > 0 || len(ws) != 1 || ws[0].Node.Rack != s || ws[0].Node.Datacenter != s {
			t.Errorf("the text roll of %q is read as %v, %v", s, ws, odd)
		}
	}
}

func TestCheckPorts(t *testing.T) {
	many := map[string]int{}
	for i := range maxOwn {
		many[strconv.Itoa(i)] = i + 1
	}
	if err := CheckPorts(many); err != nil {
		t.Error(err)
	}
	many["more"] = 1
	for name, c := range map[string]struct {
		ports map[string]int
		want  string
	}{
		"many":      {many, "17 ports are more than the 16 allowed"},
		"zero":      {map[string]int{"a": 0}, "a: 0 is not between 1 and 65535"},
		"high":      {map[string]int{"a": 65536}, "a: 65536 is not between 1 and 65535"},
		"nameless":  {map[string]int{"": 1}, "must not be empty"},
		"equals":    {map[string]int{"a=": 1}, "',', ';' and '=', not '='"},
		"long":      {map[string]int{strings.Repeat("x", maxPlace+1): 1}, "has 65 bytes"},
		"separator": {map[string]int{"a;": 1}, "not ';'"},
	} {
		if err := CheckPorts(c.ports); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestWorkerWithManyPortsAlwaysHasTheSameBytes(t *testing.T) {
	w := Worker{ID: 1, Ports: manyPorts(20)}
	first, err := EncodeWorker(w)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		again, _ := EncodeWorker(w)
		if d := cmp.Diff(first, again); d != "" {
			t.Fatalf("bytes (-first +again):\n%s", d)
		}
	}
}

func TestAddressOfIPv6HasBrackets(t *testing.T) {
	if d := cmp.Diff("[::1]:7000", Worker{IP: "::1", Port: 7000}.Address()); d != "" {
		t.Error(d)
	}
}

func TestClaimIsWrittenAndRead(t *testing.T) {
	code := 0
	for want, c := range map[string]Claim{
		`{"nonce":"a1","lives":1,"state":"in"}`:                   {Nonce: "a1", Lives: 1, State: In},
		`{"nonce":"a1","lives":2,"state":"left","signal":"TERM"}`: {Nonce: "a1", Lives: 2, State: Left, Signal: "TERM"},
		`{"nonce":"a1","lives":3,"state":"done","exit_code":0}`:   {Nonce: "a1", Lives: 3, State: Done, Exit: &code},
	} {
		isWrittenAndRead(t, want, c)
	}
}

func TestDecodeClaimSaysWhatIsDamaged(t *testing.T) {
	isDamaged[Claim](t, map[string]string{
		"":                                       "empty",
		"{}":                                     "nonce",
		`{"nonce":1}`:                            "nonce",
		`{"nonce":"a","state":"in"}`:             "lives: 0",
		`{"nonce":"a","lives":1}`:                `state: ""`,
		`{"nonce":"a","lives":1.5}`:              "lives",
		`[]`:                                     "array",
		`{"nonce":"a","lives":1,"state":"done"}`: "without an exit_code",
		`{"nonce":"a","lives":1,"state":"done","exit_code":256}`: "exit_code: 256",
	})
}
