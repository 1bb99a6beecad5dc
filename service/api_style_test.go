package service_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// messagesOfAPI visits all messages, including nested ones.
func messagesOfAPI(visit func(m protoreflect.MessageDescriptor)) {
	var walk func(list protoreflect.MessageDescriptors)
	walk = func(list protoreflect.MessageDescriptors) {
		for i := range list.Len() {
			visit(list.Get(i))
			walk(list.Get(i).Messages())
		}
	}
	protoregistry.GlobalFiles.RangeFilesByPackage("cleanup.v1", func(f protoreflect.FileDescriptor) bool {
		walk(f.Messages())
		return true
	})
}

// Times are named as docs/reference/api-style.md says (AIP-142).
func TestNamesOfTimes(t *testing.T) {
	t.Parallel()
	exceptions := []string{"RunEvent.time", "EraseEvent.time", "AuditEntry.time", "Schedule.once"}
	times := 0
	messagesOfAPI(func(m protoreflect.MessageDescriptor) {
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			name := string(m.Name()) + "." + string(f.Name())
			if f.Kind() != protoreflect.MessageKind || f.Message().FullName() != "google.protobuf.Timestamp" {
				continue
			}
			times++
			if named := strings.HasSuffix(strings.TrimSuffix(name, "s"), "_time"); named == slices.Contains(
				exceptions, name,
			) {
				t.Errorf("%s: ends in _time: %v", name, named)
			}
		}
	})
	if times < len(exceptions) {
		t.Errorf("%d times were found", times)
	}
}

// Every list has pages (AIP-158).
func TestListsHavePages(t *testing.T) {
	t.Parallel()
	lists := 0
	messagesOfAPI(func(m protoreflect.MessageDescriptor) {
		if !strings.HasPrefix(string(m.Name()), "List") {
			return
		}
		want := []protoreflect.Name{"page_size", "page_token"}
		if strings.HasSuffix(string(m.Name()), "Response") {
			lists++
			want = []protoreflect.Name{"next_page_token"}
		}
		for _, name := range want {
			if m.Fields().ByName(name) == nil {
				t.Errorf("%s has no %s", m.Name(), name)
			}
		}
	})
	if lists < 7 {
		t.Errorf("%d lists were found", lists)
	}
}
