package gds

import (
	"strings"
	"testing"
)

// A marker's name consists of a document and a session, and nothing else.
func FuzzMarker(f *testing.F) {
	for _, name := range []string{
		"", "doc", ".session", "doc.session", "doc.session_wftask12", "doc.session_wftask123", "a.session1.session2",
		".session1.session2", "doc.Session1", "doc.sessio", "a/b.session1", "..session1", "doc.session\n",
		"doc.session.session",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		guid, session, ok := ParseMarker(name)
		switch {
		case !ok && strings.Contains(name, ".session") && !strings.HasPrefix(name, ".session"):
			t.Errorf("%q is no marker", name)
		case !ok:
		case guid == "" || guid+".session"+session != name || strings.Contains(guid, ".session"):
			t.Errorf("%q is a marker of %q for session %q", name, guid, session)
		}
	})
}
