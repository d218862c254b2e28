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

func filled(count int) (found []int, failed interface{}) {
	defer func() { failed = recover() }()
	r := New(3)
	for value := 1; value <= count; value++ {
		r.Push(value)
	}
	return r.Values(), nil
}

func TestFull(t *testing.T) {
	t.Run("one more", func(t *testing.T) {
		if got, failed := filled(4); failed != nil || !reflect.DeepEqual(got, []int{2, 3, 4}) {
			t.Fatalf("got %v, %v", got, failed)
		}
	})
	t.Run("twice around", func(t *testing.T) {
		if got, failed := filled(8); failed != nil || !reflect.DeepEqual(got, []int{6, 7, 8}) {
			t.Fatalf("got %v, %v", got, failed)
		}
	})
}
