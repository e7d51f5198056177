package znode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"muster/resource"
)

// Limits of one WorkerInfo. Those of classic workers are far smaller, and so are those that muster writes.
const (
	maxWorker = 16 << 10 // bytes
	maxField  = 255      // characters of one text
	maxPorts  = 100
)

// NoID is the ID of a worker whose id is not known: it is not yet written, or a classic worker got none.
const NoID = -1

// Worker is one worker in the roll and in the worker znodes, where it is a WorkerInfo message. Its JSON is for reports.
type Worker struct {
	ID    int            `json:"id"` // NoID if it is not known
	IP    string         `json:"ip"` // other workers reach it there; a classic worker may give a host name
	Port  int            `json:"port"`
	Node  Node           `json:"node,omitzero"`
	Ports map[string]int `json:"ports,omitempty"` // additional ports by name; a text roll does not hold them
	// Identity is whose id it is, in the znode of an id that its worker brought; empty elsewhere.
	Identity string `json:"identity,omitempty"`
}

// Node says where a worker runs. Empty fields are not known.
type Node struct {
	IP         string `json:"ip,omitempty"`
	Rack       string `json:"rack,omitempty"`
	Datacenter string `json:"datacenter,omitempty"`
}

// Address is IP and Port as "host:port".
func (w Worker) Address() string { return net.JoinHostPort(w.IP, strconv.Itoa(w.Port)) }

// A WorkerInfo is a protobuf message, with the names and the field numbers of the classic controller:
//
//	message NodeInfo   { string nodeIP = 1; string rackName = 2; string dataCenterName = 3; }
//	message WorkerInfo { optional int32 workerID = 1; string workerIP = 2; int32 port = 3; NodeInfo nodeInfo = 4;
//	                     map<string, int32> additionalPort = 6; string identity = 7; }
//
// Field 7 is muster's own. Field 5 describes resources, in two numberings that contradict each other, and is skipped.
// The classic definition has a oneof of one member for the id, which is the same on the wire.

// EncodeWorker encodes w as a WorkerInfo. Equal workers have equal bytes.
func EncodeWorker(w Worker) ([]byte, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	var data, node []byte
	if w.ID != NoID {
		data = appendNumber(data, 1, w.ID)
	}
	data = appendText(data, 2, w.IP)
	if w.Port != 0 {
		data = appendNumber(data, 3, w.Port)
	}
	for i, s := range []string{w.Node.IP, w.Node.Rack, w.Node.Datacenter} {
		node = appendText(node, protowire.Number(i+1), s)
	}
	data = appendBytes(data, 4, node)
	for _, name := range slices.Sorted(maps.Keys(w.Ports)) {
		data = appendBytes(data, 6, appendNumber(appendBytes(nil, 1, []byte(name)), 2, w.Ports[name]))
	}
	data = appendText(data, 7, w.Identity)
	if len(data) > maxWorker {
		return nil, fmt.Errorf("worker: %d bytes are more than the %d allowed", len(data), maxWorker)
	}
	return data, nil
}

func appendNumber(data []byte, field protowire.Number, n int) []byte {
	return protowire.AppendVarint(protowire.AppendTag(data, field, protowire.VarintType), uint64(n))
}

func appendBytes(data []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(data, field, protowire.BytesType), value)
}

// appendText leaves out an empty text, as protobuf does.
func appendText(data []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return data
	}
	return appendBytes(data, field, []byte(s))
}

// DecodeWorker decodes and checks a WorkerInfo. A negative id, which a classic worker can have, is NoID.
func DecodeWorker(data []byte) (Worker, error) {
	if len(data) > maxWorker {
		return Worker{}, fmt.Errorf("worker: %d bytes are more than the %d allowed", len(data), maxWorker)
	}
	w := Worker{ID: NoID}
	ok := readFields(data, func(tag uint64, n int, value []byte) bool {
		switch tag {
		case 1<<3 | varint:
			w.ID = max(n, NoID)
		case 2<<3 | text:
			w.IP = string(value)
		case 3<<3 | varint:
			w.Port = n
		case 4<<3 | text:
			return w.Node.read(value)
		case 6<<3 | text:
			return w.readPort(value)
		case 7<<3 | text:
			w.Identity = string(value)
		}
		return true
	})
	if !ok {
		return Worker{}, errors.New("worker: it is no WorkerInfo message")
	}
	if err := w.check(); err != nil {
		return Worker{}, err
	}
	return w, nil
}

func (n *Node) read(message []byte) bool {
	return readFields(message, func(tag uint64, _ int, value []byte) bool {
		switch tag {
		case 1<<3 | text:
			n.IP = string(value)
		case 2<<3 | text:
			n.Rack = string(value)
		case 3<<3 | text:
			n.Datacenter = string(value)
		}
		return true
	})
}

// readPort reads an entry of the map of ports, which is a message too.
func (w *Worker) readPort(entry []byte) bool {
	name, port := "", 0
	ok := readFields(entry, func(tag uint64, n int, value []byte) bool {
		switch tag {
		case 1<<3 | text:
			name = string(value)
		case 2<<3 | varint:
			port = n
		}
		return true
	})
	if w.Ports == nil {
		w.Ports = map[string]int{}
	}
	w.Ports[name] = port
	return ok
}

// The types of the fields. A tag is a field's number, shifted by 3, and its type: one of another type is skipped.
const varint, text = uint64(protowire.VarintType), uint64(protowire.BytesType)

// readFields calls read with the fields of a message. It is false if the message cannot be read, or one in it.
func readFields(message []byte, read func(tag uint64, n int, value []byte) bool) bool {
	for len(message) > 0 {
		field, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return false
		}
		message = message[size:]
		var n uint64
		var value []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(field, kind, message)
		}
		if size < 0 || !read(protowire.EncodeTag(field, kind), int(int32(n)), value) {
			return false
		}
		message = message[size:]
	}
	return true
}

func (w Worker) check() error {
	if w.ID < NoID || w.ID > 1<<31-1 {
		return fmt.Errorf("worker: %d is not an id", w.ID)
	}
	err := cmp.Or(checkText("worker: ip", w.IP), checkPort("worker: port", w.Port), w.Node.check(),
		checkText("worker: identity", w.Identity))
	if n := len(w.Ports); n > maxPorts {
		return fmt.Errorf("worker: %d additional ports are more than the %d allowed", n, maxPorts)
	}
	for name, port := range w.Ports {
		err = cmp.Or(err, checkText("worker: name of a port", name),
			checkPort(fmt.Sprintf("worker: port %q", name), port))
	}
	return err
}

func (n Node) check() error {
	return cmp.Or(checkText("worker: ip of its node", n.IP), checkText("worker: rack", n.Rack),
		checkText("worker: data center", n.Datacenter))
}

func checkText(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s: %.100q is not UTF-8", what, s)
	}
	if n := utf8.RuneCountInString(s); n > maxField {
		return fmt.Errorf("%s: it has %d characters; at most %d are allowed", what, n, maxField)
	}
	for _, r := range s {
		if (r < ' ' || r > '~') && !unicode.IsPrint(r) {
			return fmt.Errorf("%s: it may hold printable characters, not %q", what, r)
		}
	}
	return nil
}

func checkPort(what string, port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("%s: %d is not between 0 and 65535", what, port)
	}
	return nil
}

// A worker of muster says less of its place, and has fewer ports, than a WorkerInfo may hold: all share the room of the
// roll, and the text form of that is split at some characters.
const (
	maxPlace   = 64 // bytes of a rack, a data center, and the name of a port
	maxOwn     = 16 // ports
	absentText = "null"
)

// CheckPlace says why s is not a rack or a data center that a worker of muster may give, or returns nil. It has 1 to 64
// bytes of printable characters; no space, comma or semicolon.
func CheckPlace(s string) error {
	if strings.EqualFold(s, absentText) {
		return fmt.Errorf("%q stands for none in a text roll", s)
	}
	return checkName(s, ",; ", "except a space, ',' and ';'")
}

// CheckPorts says why a worker of muster may not have these additional ports, or returns nil. They are at most 16, each
// from 1 to 65535. A name is like that of a place; it may not hold '=' either.
func CheckPorts(ports map[string]int) error {
	if n := len(ports); n > maxOwn {
		return fmt.Errorf("%d ports are more than the %d allowed", n, maxOwn)
	}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		if err := checkName(name, ",; =", "except a space, ',', ';' and '='"); err != nil {
			return err
		}
		if port := ports[name]; port < 1 || port > 65535 {
			return fmt.Errorf("%s: %d is not between 1 and 65535", name, port)
		}
	}
	return nil
}

// checkName refuses the characters of not; but says which those are.
func checkName(s, not, but string) error {
	if n := len(s); n > maxPlace {
		return fmt.Errorf("%.20q... has %d bytes; at most %d are allowed", s, n, maxPlace)
	}
	return resource.CheckPrintable("the name", s, maxPlace, but, func(r rune) bool { return strings.ContainsRune(not, r) })
}

// Claim is the body of by/<identity>: the claim of an identity to a worker id in one generation. Only join, rejoin,
// leave and complete write it.
type Claim struct {
	Nonce string     `json:"nonce"` // random, of the last writer; with it a process recognises its own write
	Lives int        `json:"lives"` // how often the worker joined: 1 after its first join
	State ClaimState `json:"state"`
	// Exit and Signal say how the worker's last command ended; both are absent if none has ended.
	Exit   *int   `json:"exit_code,omitempty"`
	Signal string `json:"signal,omitempty"`
	// ID is the id that the worker brought; absent if it took one by the order of joining.
	ID *int `json:"id,omitempty"`
}

// ClaimState is the state of a worker.
type ClaimState string

// The states of a claim. A worker that left may join again; one that is done may not.
const (
	In   ClaimState = "in"
	Left ClaimState = "left"
	Done ClaimState = "done"
)

func (c Claim) check() error {
	switch {
	case c.Nonce == "":
		return fmt.Errorf("it has no nonce")
	case c.Lives < 1:
		return fmt.Errorf("lives: %d is less than 1", c.Lives)
	case c.State != In && c.State != Left && c.State != Done:
		return fmt.Errorf("state: %q is not known", c.State)
	case c.State == Done && c.Exit == nil:
		return fmt.Errorf("it is done without an exit_code")
	case c.ID != nil && *c.ID < 0:
		return fmt.Errorf("id: %d is negative", *c.ID)
	case c.Exit != nil && (*c.Exit < 0 || *c.Exit > 255):
		return fmt.Errorf("exit_code: %d is not between 0 and 255", *c.Exit)
	}
	return nil
}

// MaxValue is how many bytes a published value may have.
const MaxValue = 64 << 10

// maxValueHeader bounds the first line of a published value.
const maxValueHeader = 1 << 10

// Value is what a worker has published under a key. In its znode it is one line of JSON, a newline, and the bytes of
// the value as they are.
type Value struct {
	Life int    `json:"life"` // number of the life of the identity that wrote it, from 1: Claim.Lives
	Data []byte `json:"-"`    // at most MaxValue bytes
}

// Data is the znode of a value: a child of the id of the worker that has published it, so it goes with the generation.
func Data(root, g string, id int, key string) string { return resource.Join(ID(root, g, id), key) }

// EncodeValue encodes a value.
func EncodeValue(v Value) ([]byte, error) {
	if v.Life < 1 {
		return nil, fmt.Errorf("value: there is no life %d", v.Life)
	}
	return encodeLine(v, v.Data, MaxValue)
}

// DecodeValue decodes a value. It ignores fields of the first line that it does not know.
func DecodeValue(body []byte) (v Value, err error) {
	v.Data, err = decodeLine(body, &v, MaxValue)
	if err == nil && v.Life < 1 {
		err = fmt.Errorf("value: life %d", v.Life)
	}
	return v, err
}

// encodeLine encodes a value of at most so many bytes after a line of JSON.
func encodeLine(header any, data []byte, most int) ([]byte, error) {
	if len(data) > most {
		return nil, fmt.Errorf("value: %d bytes are more than the %d allowed", len(data), most)
	}
	line, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), data...), nil
}

// decodeLine decodes the header of such a value, and returns the value.
func decodeLine(body []byte, header any, most int) ([]byte, error) {
	line, data, found := bytes.Cut(body[:min(len(body), maxValueHeader+most)], []byte("\n"))
	if !found || len(line) > maxValueHeader || len(body) > maxValueHeader+most {
		return nil, errors.New("value: it is no line of JSON and a value")
	}
	if err := json.Unmarshal(line, header); err != nil {
		return nil, fmt.Errorf("value: its first line is no JSON: %w", err)
	}
	if len(data) > most {
		return nil, fmt.Errorf("value: %d bytes are more than the %d allowed", len(data), most)
	}
	return bytes.Clone(data), nil
}

// EncodeShared encodes the body of the folder of claims: how many bytes of the room that all workers share are taken.
func EncodeShared(taken int) []byte { return strconv.AppendInt(nil, int64(taken), 10) }

// DecodeShared decodes the body of the folder of claims. An empty body is 0.
func DecodeShared(body []byte) (int, error) {
	if len(body) == 0 {
		return 0, nil
	}
	n, err := strconv.Atoi(string(body[:min(len(body), 20)]))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("shared room: %.20q is no number of bytes", body)
	}
	return n, nil
}
