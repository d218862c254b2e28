package ring

import (
	"reflect"
	"testing"
)

func TestEmpty(t *testing.T) {
	if got := New(3).Values(); len(got) != 0 {
		t.Fatalf("got %v", got)
	}
}

func TestPush(t *testing.T) {
	r := New(3)
	r.Push(1)
	r.Push(2)
	if got := r.Values(); !reflect.DeepEqual(got, []int{1, 2}) {
		t.Fatalf("got %v", got)
	}
}
