// Package ring keeps the last values it was given.
package ring

// Ring holds at most a fixed number of values.
type Ring struct {
	values []int
	start  int
	used   int
}

// New returns a ring for size values.
func New(size int) *Ring {
	return &Ring{values: make([]int, size)}
}

// Push adds a value; a full ring drops its oldest.
func (r *Ring) Push(value int) {
	if r.used == len(r.values) {
		r.values[r.start] = value
		r.start = (r.start + 1) % len(r.values)
		return
	}
	r.values[(r.start+r.used)%len(r.values)] = value
	r.used++
}

// Values returns the values from the oldest to the newest.
func (r *Ring) Values() []int {
	found := make([]int, 0, r.used)
	for at := 0; at < r.used; at++ {
		found = append(found, r.values[(r.start+at)%len(r.values)])
	}
	return found
}
