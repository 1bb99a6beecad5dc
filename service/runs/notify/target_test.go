package notify

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A target's name has no secrets; two URLs of one host have different names.
func TestNamesOfTargets(t *testing.T) {
	t.Parallel()
	names := map[string]string{}
	for address, want := range map[string]string{
		"https://hooks.example/T0/PLANTED":                 "https://hooks.example (",
		"https://hooks.example/T1/PLANTED":                 "https://hooks.example (",
		"https://u:PLANTED@hooks.example:8443/x?k=PLANTED": "https://hooks.example:8443 (",
		"http://127.0.0.1:80/PLANTED":                      "http://127.0.0.1:80 (",
		"http://[::1]/PLANTED":                             "http://[::1] (",
		"smtp://u:PLANTED@mail.example?to=a@b.example":     "mail to a@b.example by mail.example:587",
		"smtps://mail.example?to=a@b.example,c@d.example&from=x@y.example": "mail to a@b.example, c@d.example by " +
			"mail.example:465",
		"smtp://localhost:25?to=a@b.example&to=Somebody%20%3Cc@d.example%3E": "mail to a@b.example, c@d.example by " +
			"localhost:25",
	} {
		target, err := ParseTarget(address, Options{})
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		if !strings.HasPrefix(target.Name, want) || strings.Contains(target.Name, "PLANTED") {
			t.Errorf("%s: got %s", address, target.Name)
		}
		if other := names[target.Name]; other != "" {
			t.Errorf("%s and %s have the same name", other, address)
		}
		names[target.Name] = address
	}
}

// A URL without a valid target is refused. The error does not quote its secrets.
func TestBadTargets(t *testing.T) {
	t.Parallel()
	secret := file(t, "PLANTED")
	for address, want := range map[string]string{
		"":                                                "this is not https://",
		"PLANTED":                                         "this is not https://",
		"https://":                                        "this is not https://",
		"https://u:PLANTED/x@h.example":                   "this is not https://",
		"ftp://u:PLANTED@h.example/x":                     "begins with ftp://",
		"http://h.example/PLANTED":                        "use https://, or --notify-insecure",
		"http://u:PLANTED@h.example/":                     "a password is sent only over TLS",
		"smtp://h.example":                                "to must be an e-mail address",
		"smtp://h.example?to=nobody":                      "to must be an e-mail address",
		"smtp://h.example?to=a@b%0d%0aBcc:c@d":            "to must be an e-mail address",
		"smtp://h.example?to=a@b&from=c@d,e@f":            "from must be one e-mail address",
		"smtp://h.example?to=a@b&form=c@d":                `unknown parameter "form"`,
		"smtp://h.example/PLANTED?to=a@b":                 "this is not smtp://",
		"smtp://h.example:0x19?to=a@b":                    "this is not https://",
		"smtp://h.example?to=a@b&password-file=" + secret: "needs a user",
		"smtp://u:PLANTED@h.example?to=a@b&password-file=" + secret: "without a password",
		"smtp://u@h.example?to=a@b&password-file=/no/file":          "no such file",
	} {
		if _, err := ParseTarget(address, Options{}); err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "PLANTED") {
			t.Errorf("%s: got %v", address, err)
		}
	}
	if _, err := ParseTarget("http://h.example/x", Options{Insecure: true}); err != nil {
		t.Errorf("plain HTTP that is allowed: %v", err)
	}
	if _, err := ParseTarget("http://u:PLANTED@h.example/x", Options{Insecure: true}); err == nil {
		t.Error("a password over plain HTTP is allowed")
	}
}
