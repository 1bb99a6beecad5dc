package serve

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
	"github.com/cleanupd/cleanupd/internal/version"
	"github.com/cleanupd/cleanupd/service/runs/notify"
)

type notifyConfig struct {
	urls               []string
	secretFile, caFile string
	insecure           bool
}

func (c *notifyConfig) addFlags(f *pflag.FlagSet) {
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
		"also send notifications to other hosts without TLS: to http://, and to mail servers without STARTTLS; never "+
			"with a password")
}

// parse returns usage errors, which contain no secrets.
func (c *notifyConfig) parse() (targets []*notify.Target, err error) {
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

func addBoundFlags(f *pflag.FlagSet, b *notify.Bounds) {
	f.Int64Var(&b.Rows, "notify-retained-rows", b.Rows,
		"notify of a run that retained this many obsolete rows or more; rows on hold do not count; 0: never")
	f.Int64Var(&b.Tables, "notify-retained-tables", b.Tables,
		"notify of a run that could not finish this many tables or more; 0: never")
	f.BoolVar(&b.OnlyScheduled, "notify-only-scheduled", b.OnlyScheduled,
		"leave out the runs that callers have started, who see their ends themselves")
}

func checkBounds(b notify.Bounds) error {
	if b.Rows < 0 || b.Tables < 0 {
		return flags.Errorf("--notify-retained-rows and --notify-retained-tables must be 0 or more, not %d and %d",
			b.Rows, b.Tables)
	}
	return nil
}

func logTargets(log *slog.Logger, targets []*notify.Target) {
	for _, t := range targets {
		log.Info("notification settings", "target", t.Name, "protection", t.Protection)
	}
	if len(targets) == 0 {
		log.Info("notification settings", "target", "none")
	}
}

func NewNotify() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "notify test",
		Short:   "Try whether notifications arrive",
		Example: "  cleanupd notify test --notify https://hooks.example/cleanup",
		Args:    flags.OnlyCommands,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNotifyTest())
	return cmd
}

func newNotifyTest() *cobra.Command {
	var (
		config notifyConfig
		origin notify.Origin
	)
	cmd := &cobra.Command{
		Use:   "test --notify URL",
		Short: "Send a test notification to each target, as serve would",
		Long: "Send a test notification to each target, as serve would, and print the outcomes.\n" +
			"Give the same flags to serve afterwards. This takes them and its environment variables, and " +
			"needs neither a server nor a database. The exit\n" +
			"status is 1 if a notification was not accepted.",
		Example: "  cleanupd notify test --notify https://hooks.example/cleanup --notify-secret-file secret\n" +
			"  cleanupd notify test --notify 'smtp://mail.example?to=dba@example.com'",
		Args: flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			targets, err := config.parse()
			if err != nil {
				return err
			}
			if len(targets) == 0 {
				return flags.Errorf("--notify is required: https://HOST/PATH or smtp://HOST?to=ADDRESS")
			}
			failed := 0
			for _, t := range targets {
				outcome := "sent"
				if err := notify.Test(cmd.Context(), t, origin); err != nil {
					failed++
					outcome = "not sent: " + err.Error()
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", terminal.Printable(t.Name), outcome)
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d notifications were not sent", failed, len(targets))
			}
			return nil
		},
	}
	config.addFlags(cmd.Flags())
	flags.AddSettingsFile(cmd.Flags())
	cmd.Flags().StringVar(&origin.Instance, "instance", "", "the name of this service, which the notification has")
	return cmd
}
