// Package ring keeps the last values it was given.
package ring

// Ring holds at most a fixed number of values.
type Ring struct {
	values []int
	used   int
}

// New returns a ring for size values.
func New(size int) *Ring {
	return &Ring{values: make([]int, size)}
}

// Push adds a value.
func (r *Ring) Push(value int) {
	r.values[r.used] = value
	r.used++
}

// Values returns the values from the oldest to the newest.
func (r *Ring) Values() []int {
	return append([]int{}, r.values[:r.used]...)
}
