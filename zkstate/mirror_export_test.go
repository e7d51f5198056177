package zkstate

// Doubt does what a Mirror does once a minute.
func (m *Mirror) Doubt() { m.doubt() }

// Remembered is how many answers m has.
func (m *Mirror) Remembered() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.answers)
}

// MaxIdle is how many answers that no Look uses are kept.
const MaxIdle = maxIdle

// Uses is how many answers l uses.
func (l *Look) Uses() int {
	l.mirror.mu.Lock()
	defer l.mirror.mu.Unlock()
	return len(l.uses)
}
