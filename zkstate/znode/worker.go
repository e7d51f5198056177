package znode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"muster/resource"
	"muster/zkstate/znode/internal/jobmaster"
)

// Limits of one WorkerInfo. Those of classic workers are far smaller.
const (
	maxWorker = 16 << 10 // bytes
	maxField  = 255      // characters of one text
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
}

// Node says where a worker runs. Empty fields are not known.
type Node struct {
	IP         string `json:"ip,omitempty"`
	Rack       string `json:"rack,omitempty"`
	Datacenter string `json:"datacenter,omitempty"`
}

// Address is IP and Port as "host:port".
func (w Worker) Address() string { return net.JoinHostPort(w.IP, strconv.Itoa(w.Port)) }

// EncodeWorker encodes w as a WorkerInfo. Equal workers have equal bytes.
func EncodeWorker(w Worker) ([]byte, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	m := &jobmaster.WorkerInfo{
		WorkerIP: w.IP,
		Port:     int32(w.Port),
		NodeInfo: &jobmaster.NodeInfo{NodeIP: w.Node.IP, RackName: w.Node.Rack, DataCenterName: w.Node.Datacenter},
	}
	if w.ID != NoID {
		m.WorkerID = proto.Int32(int32(w.ID))
	}
	for name, port := range w.Ports {
		if m.AdditionalPort == nil {
			m.AdditionalPort = make(map[string]int32, len(w.Ports))
		}
		m.AdditionalPort[name] = int32(port)
	}
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("worker: %w", err)
	}
	if len(data) > maxWorker {
		return nil, fmt.Errorf("worker: %d bytes are more than the %d allowed", len(data), maxWorker)
	}
	return data, nil
}

// DecodeWorker decodes and checks a WorkerInfo. A negative id, which a classic worker can have, is NoID.
func DecodeWorker(data []byte) (Worker, error) {
	if len(data) > maxWorker {
		return Worker{}, fmt.Errorf("worker: %d bytes are more than the %d allowed", len(data), maxWorker)
	}
	var m jobmaster.WorkerInfo
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &m); err != nil {
		// The library's error is left out: its text differs between builds on purpose.
		return Worker{}, fmt.Errorf("worker: it is no WorkerInfo message")
	}
	n := m.GetNodeInfo()
	w := Worker{
		ID: NoID, IP: m.GetWorkerIP(), Port: int(m.GetPort()),
		Node: Node{n.GetNodeIP(), n.GetRackName(), n.GetDataCenterName()},
	}
	if m.WorkerID != nil {
		w.ID = max(int(m.GetWorkerID()), NoID)
	}
	for name, port := range m.GetAdditionalPort() {
		if w.Ports == nil {
			w.Ports = make(map[string]int, len(m.GetAdditionalPort()))
		}
		w.Ports[name] = int(port)
	}
	if err := w.check(); err != nil {
		return Worker{}, err
	}
	return w, nil
}

func (w Worker) check() error {
	if w.ID < NoID || w.ID > 1<<31-1 {
		return fmt.Errorf("worker: %d is not an id", w.ID)
	}
	if err := checkText("worker: ip", w.IP); err != nil {
		return err
	}
	if err := checkPort(w.Port); err != nil {
		return fmt.Errorf("worker: port: %w", err)
	}
	if err := w.Node.check(); err != nil {
		return err
	}
	for name, port := range w.Ports {
		if err := checkText("worker: name of a port", name); err != nil {
			return err
		}
		if err := checkPort(port); err != nil {
			return fmt.Errorf("worker: port %q: %w", name, err)
		}
	}
	return nil
}

func (n Node) check() error {
	if err := checkText("worker: ip of its node", n.IP); err != nil {
		return err
	}
	if err := checkText("worker: rack", n.Rack); err != nil {
		return err
	}
	return checkText("worker: data center", n.Datacenter)
}

// checkText refuses a text that is too long, not UTF-8 or not printable.
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

func checkPort(port int) error {
	if port < 0 || port > 65535 {
		return fmt.Errorf("%d is not between 0 and 65535", port)
	}
	return nil
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
	Life int    // number of the life of the identity that wrote it, from 1: Claim.Lives
	Data []byte // at most MaxValue bytes
}

// valueHeader is the first line of a Value.
type valueHeader struct {
	Life int `json:"life"`
}

// Data is the znode of a value: a child of the id of the worker that has published it, so it goes with the generation.
func Data(root, g string, id int, key string) string { return resource.Join(ID(root, g, id), key) }

// EncodeValue encodes a value.
func EncodeValue(v Value) ([]byte, error) {
	if v.Life < 1 {
		return nil, fmt.Errorf("value: there is no life %d", v.Life)
	}
	return encodeLine(valueHeader{v.Life}, v.Data, MaxValue)
}

// DecodeValue decodes a value. It ignores fields of the first line that it does not know.
func DecodeValue(body []byte) (Value, error) {
	var h valueHeader
	data, err := decodeLine(body, &h, MaxValue)
	if err == nil && h.Life < 1 {
		err = fmt.Errorf("value: life %d", h.Life)
	}
	if err != nil {
		return Value{}, err
	}
	return Value{h.Life, data}, nil
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
