package znode

import (
	"fmt"
	"strconv"
	"strings"
)

// The text roll of classic workers has one row for each worker, with a newline before it:
//
//	ip,port,workerID;nodeIP,rackName,datacenterName
//
// An absent field of the second part is the word null, in any case. The first prototype wrote ip:port=workerID;
// instead.

// appendRow appends one row. A field with the value "null" will be read as absent.
func appendRow(data []byte, w Worker) ([]byte, error) {
	if err := w.check(); err != nil {
		return nil, err
	}
	for _, s := range []string{w.IP, w.Node.IP, w.Node.Rack, w.Node.Datacenter} {
		if strings.ContainsAny(s, ",;") {
			return nil, fmt.Errorf("%q cannot be in a text roll, whose separators are ',' and ';'", s)
		}
	}
	return fmt.Appendf(data, "\n%s,%d,%d;%s,%s,%s", w.IP, w.Port, w.ID,
		orNull(w.Node.IP), orNull(w.Node.Rack), orNull(w.Node.Datacenter)), nil
}

func orNull(s string) string {
	if s == "" {
		return "null"
	}
	return s
}

func decodeText(data []byte, odd *oddities) []Worker {
	var ws []Worker
	row := 0
	for line := range strings.SplitSeq(string(data), "\n") {
		if line == "" {
			continue
		}
		row++
		if rows, ok := decodePrototype(line); ok {
			ws = append(ws, rows...)
			continue
		}
		first, rest, _ := strings.Cut(line, ";")
		second, rest, _ := strings.Cut(rest, ";")
		w, err := decodeAddress(first)
		if err != nil {
			odd.add("row %d: %v", row, err)
			continue
		}
		if w.Node, err = decodeNode(second); err != nil {
			odd.add("row %d: no node: %v", row, err)
		}
		if rest != "" {
			odd.add("row %d: %.100q after its second part was ignored", row, rest)
		}
		ws = append(ws, w)
	}
	return ws
}

// decodeAddress reads ip,port,workerID.
func decodeAddress(s string) (Worker, error) {
	fields := strings.Split(s, ",")
	if len(fields) != 3 {
		return Worker{}, fmt.Errorf("%.100q is not ip,port,workerID", s)
	}
	return newWorker(fields[0], fields[1], fields[2])
}

// decodeNode reads nodeIP,rackName,datacenterName.
func decodeNode(s string) (Node, error) {
	fields := strings.Split(s, ",")
	if len(fields) != 3 {
		return Node{}, fmt.Errorf("%.100q is not nodeIP,rackName,datacenterName", s)
	}
	for i, f := range fields {
		if strings.EqualFold(f, "null") {
			fields[i] = ""
		}
	}
	n := Node{fields[0], fields[1], fields[2]}
	if err := n.check(); err != nil {
		return Node{}, err
	}
	return n, nil
}

// decodePrototype reads a line of one or more ip:port=workerID; and reports whether it is one.
func decodePrototype(line string) ([]Worker, bool) {
	rest, ok := strings.CutSuffix(line, ";")
	if !ok || strings.Contains(rest, ",") {
		return nil, false
	}
	var ws []Worker
	for s := range strings.SplitSeq(rest, ";") {
		address, id, ok := strings.Cut(s, "=")
		colon := strings.LastIndexByte(address, ':')
		if !ok || colon < 0 {
			return nil, false
		}
		w, err := newWorker(address[:colon], address[colon+1:], id)
		if err != nil {
			return nil, false
		}
		ws = append(ws, w)
	}
	return ws, true
}

// newWorker is the worker of these texts. A negative id is NoID.
func newWorker(ip, port, id string) (Worker, error) {
	p, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return Worker{}, fmt.Errorf("%.100q is not a port", port)
	}
	n, err := strconv.ParseInt(id, 10, 32)
	if err != nil {
		return Worker{}, fmt.Errorf("%.100q is not an id", id)
	}
	w := Worker{ID: max(int(n), NoID), IP: ip, Port: int(p)}
	if err := w.check(); err != nil {
		return Worker{}, err
	}
	return w, nil
}
