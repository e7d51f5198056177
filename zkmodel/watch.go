package zkmodel

// EventType is what an event says about its path. Source: Watcher.Event.EventType.
type eventType int32

const (
	nodeCreated         eventType = 1
	nodeDeleted         eventType = 2
	nodeDataChanged     eventType = 3
	nodeChildrenChanged eventType = 4
)

const (
	eventXid      = -1
	syncConnected = 3 // the state in every event
)

// watches are the one-shot watches of one kind. They belong to connections: a client that connects again sets them
// again.
type watches struct {
	peers map[string][]*Peer            // by path, in the order of setting
	paths map[*Peer]map[string]struct{} // the same, by connection
}

func newWatches() *watches {
	return &watches{map[string][]*Peer{}, map[*Peer]map[string]struct{}{}}
}

func (w *watches) add(path string, p *Peer) {
	paths := w.paths[p]
	if paths == nil {
		paths = map[string]struct{}{}
		w.paths[p] = paths
	}
	if _, ok := paths[path]; ok {
		return
	}
	paths[path] = struct{}{}
	w.peers[path] = append(w.peers[path], p)
}

// trigger removes the watches of the path and sends the event to their connections, except those in told. It returns
// all of them.
func (w *watches) trigger(path string, event eventType, told []*Peer) []*Peer {
	peers := w.peers[path]
	if peers == nil {
		return nil
	}
	delete(w.peers, path)
	for _, p := range peers {
		delete(w.paths[p], path)
		if !contains(told, p) {
			p.sendEvent(event, path)
		}
	}
	return peers
}

// drop removes all watches of a connection.
func (w *watches) drop(p *Peer) {
	for path := range w.paths[p] {
		peers := w.peers[path]
		if len(peers) == 1 {
			delete(w.peers, path)
			continue
		}
		rest := make([]*Peer, 0, len(peers)-1)
		for _, q := range peers {
			if q != p {
				rest = append(rest, q)
			}
		}
		w.peers[path] = rest
	}
	delete(w.paths, p)
}

func contains(peers []*Peer, p *Peer) bool {
	for _, q := range peers {
		if q == p {
			return true
		}
	}
	return false
}

// notify sends the events of a committed operation.
func (s *Server) notify(o *Op) {
	switch o.Type {
	case OpCreate, OpCreate2:
		s.data.trigger(o.Path, nodeCreated, nil)
		s.child.trigger(parentPath(o.Path), nodeChildrenChanged, nil)
	case OpDelete:
		told := s.data.trigger(o.Path, nodeDeleted, nil)
		s.child.trigger(o.Path, nodeDeleted, told)
		s.child.trigger(parentPath(o.Path), nodeChildrenChanged, nil)
	case OpSetData:
		s.data.trigger(o.Path, nodeDataChanged, nil)
	}
}

// parentPath is the path of the parent of an existing znode, as clients name it.
func parentPath(path string) string {
	if parent, _ := parentOf(path); parent != "" {
		return parent
	}
	return "/"
}

// setWatches sets the watches of a client that connected again, and sends the events that it missed: those of changes
// after the transaction relative. Source: DataTree.setWatches.
func (s *Server) setWatches(p *Peer, d *decoder) Code {
	relative := d.int64()
	data, exist, child := d.strings(), d.strings(), d.strings()
	if d.err != nil {
		return MarshallingError
	}
	for _, path := range data {
		switch n := s.tree.nodes[path]; {
		case n == nil:
			p.sendEvent(nodeDeleted, path)
		case n.meta.Mzxid > relative:
			p.sendEvent(nodeDataChanged, path)
		default:
			s.data.add(path, p)
		}
	}
	for _, path := range exist {
		if s.tree.nodes[path] != nil {
			p.sendEvent(nodeCreated, path)
		} else {
			s.data.add(path, p)
		}
	}
	for _, path := range child {
		switch n := s.tree.nodes[path]; {
		case n == nil:
			p.sendEvent(nodeDeleted, path)
		case n.meta.Pzxid > relative:
			p.sendEvent(nodeChildrenChanged, path)
		default:
			s.child.add(path, p)
		}
	}
	return OK
}
