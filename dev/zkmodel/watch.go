package zkmodel

import "slices"

// eventType is what an event says about its path. Source: Watcher.Event.EventType.
type eventType int32

const (
	nodeCreated         eventType = 1
	nodeDeleted         eventType = 2
	nodeDataChanged     eventType = 3
	nodeChildrenChanged eventType = 4
)

// syncConnected is the state in every event.
const syncConnected = 3

// watches are the one-shot watches of one kind. They belong to connections: a client that connects again sets them
// again.
type watches map[string][]*Peer // by path, in the order of setting

func (w watches) add(path string, p *Peer) {
	if !slices.Contains(w[path], p) {
		w[path] = append(w[path], p)
	}
}

// trigger removes the watches of the path and sends the event to their connections, except those in told and those
// that the ACL does not let read. It returns all of them. Source: WatchManager.triggerWatch, NIOServerCnxn.process.
func (w watches) trigger(path string, event eventType, acl []ACL, told []*Peer) []*Peer {
	peers := w[path]
	delete(w, path)
	for _, p := range peers {
		if !slices.Contains(told, p) && permitted(acl, permRead, p.ids) {
			p.sendEvent(event, path)
		}
	}
	return peers
}

func (w watches) drop(p *Peer) {
	for path, peers := range w {
		w[path] = slices.DeleteFunc(peers, func(q *Peer) bool { return q == p })
		if len(w[path]) == 0 {
			delete(w, path)
		}
	}
}

func (s *Server) notify(t *Txn) {
	for i := range t.Ops {
		o := &t.Ops[i]
		switch path := o.Path; o.Type {
		case OpCreate, OpCreate2:
			s.data.trigger(path, nodeCreated, o.acl, nil)
			s.child.trigger(parentPath(path), nodeChildrenChanged, o.above, nil)
		case OpDelete:
			told := s.data.trigger(path, nodeDeleted, o.acl, nil)
			s.child.trigger(path, nodeDeleted, o.acl, told)
			s.child.trigger(parentPath(path), nodeChildrenChanged, o.above, nil)
		case OpSetData:
			s.data.trigger(path, nodeDataChanged, o.acl, nil)
		}
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
	if d.bad {
		return MarshallingError
	}
	// again sets a watch. If the znode is gone, or last says that it changed after relative, it sends the event instead.
	again := func(w watches, path string, last func(n *node) int64, changed eventType) {
		switch n := s.tree.nodes[path]; {
		case n == nil:
			p.sendEvent(nodeDeleted, path)
		case last(n) > relative:
			p.sendEvent(changed, path)
		default:
			w.add(path, p)
		}
	}
	for _, path := range data {
		again(s.data, path, func(n *node) int64 { return n.meta.Mzxid }, nodeDataChanged)
	}
	for _, path := range exist {
		if s.tree.nodes[path] != nil {
			p.sendEvent(nodeCreated, path)
		} else {
			s.data.add(path, p)
		}
	}
	for _, path := range child {
		again(s.child, path, func(n *node) int64 { return n.meta.Pzxid }, nodeChildrenChanged)
	}
	return OK
}
