package znode

import (
	"fmt"
	"net"
	"strconv"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

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
