package targets

import (
	"errors"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/version"
	"github.com/cleanupd/cleanupd/service/runs/notify"
)

type Config struct {
	urls               []string
	secretFile, caFile string
	insecure           bool
}

func (c *Config) AddFlags(f *pflag.FlagSet) {
	f.StringArrayVar(&c.urls, "notify", nil,
		"who is notified of failed, refused and missed runs: https://HOST/PATH (a POST of a CloudEvent), "+
			"smtp://HOST?to=ADDRESS (an e-mail with STARTTLS, port 587) or smtps://HOST?to=ADDRESS (with TLS, port 465), "+
			"with USER:PASSWORD@ or USER@ and &password-file=FILE where the mail server needs them, and "+
			"&from=ADDRESS; may be repeated")
	f.StringVar(&c.secretFile, "notify-secret-file", "",
		"the file with the secret that signs the requests of --notify https:// (HMAC-SHA256); it is read for each "+
			"request; without it they are not signed")
	f.StringVar(&c.caFile, "notify-ca", "",
		"a file with the certificate authorities of the hosts in --notify (default those of the system)")
	f.BoolVar(&c.insecure, "notify-insecure", false,
		"send notifications to other hosts without TLS, too: to http://, and to mail servers without STARTTLS; never "+
			"with a password")
}

// Parse returns usage errors, which contain no secrets.
func (c *Config) Parse() (targets []*notify.Target, err error) {
	if len(c.urls) == 0 {
		if c.secretFile != "" || c.caFile != "" || c.insecure {
			return nil, flags.Errorf("--notify-secret-file, --notify-ca and --notify-insecure need --notify")
		}
		return nil, nil
	}
	o := notify.Options{
		SecretFile: c.secretFile,
		Insecure:   c.insecure,
		UserAgent:  "cleanupd/" + version.String(),
	}
	if c.secretFile != "" {
		if _, err := notify.ReadSecret(c.secretFile); err != nil {
			return nil, flags.Errorf("--notify-secret-file: %w", err)
		}
	}
	if c.caFile != "" {
		if o.Roots, err = flags.ReadAuthorities("--notify-ca", c.caFile); err != nil {
			return nil, err
		}
	}
	var mistakes []error
	known := map[string]bool{}
	for i, address := range c.urls {
		t, err := notify.ParseTarget(address, o)
		switch {
		case err != nil:
			mistakes = append(mistakes, flags.Errorf("--notify, URL %d: %w", i+1, err))
		case known[t.Name]:
			mistakes = append(mistakes, flags.Errorf("--notify: %s is given twice", t.Name))
		default:
			known[t.Name] = true
			targets = append(targets, t)
		}
	}
	return targets, errors.Join(mistakes...)
}

func AddBoundFlags(f *pflag.FlagSet, b *notify.Bounds) {
	f.Int64Var(&b.Rows, "notify-retained-rows", b.Rows,
		"notify of a run that retained this many obsolete rows or more; rows on hold do not count; 0: never")
	f.Int64Var(&b.Tables, "notify-retained-tables", b.Tables,
		"notify of a run that could not finish this many tables or more; 0: never")
	f.BoolVar(&b.OnlyScheduled, "notify-only-scheduled", b.OnlyScheduled,
		"leave out the runs that callers have started, who see their ends themselves")
}

func CheckBounds(b notify.Bounds) error {
	if b.Rows < 0 || b.Tables < 0 {
		return flags.Errorf("--notify-retained-rows and --notify-retained-tables must be 0 or more, not %d and %d",
			b.Rows, b.Tables)
	}
	return nil
}

func Log(log *slog.Logger, targets []*notify.Target) {
	for _, t := range targets {
		log.Info("notifications", "target", t.Name, "protection", t.Protection)
	}
	if len(targets) == 0 {
		log.Info("notifications", "target", "none")
	}
}
