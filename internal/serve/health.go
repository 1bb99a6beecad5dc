package serve

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleanupd/cleanupd/internal/flags"
	"github.com/cleanupd/cleanupd/internal/terminal"
)

// healthTimeout is how long a server may take to answer.
const healthTimeout = 5 * time.Second

func NewHealth() *cobra.Command {
	var (
		listen, certificate string
		ready               bool
	)
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether the server on this machine is alive, for the health checks of containers",
		Long: "Check whether the server on this machine is alive, or with --ready also " +
			"whether it can write to its database.\n" +
			"No credentials are needed, and no flags where the server is configured by environment variables. The " +
			"exit status is 1\nif the check fails.",
		Example: "  cleanupd health\n  cleanupd health --ready --http-listen :8080 --tls-cert cert.pem",
		Args:    flags.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), healthTimeout)
			defer cancel()
			if server := os.Getenv("CLEANUPD_SERVER"); server != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "Checking the server on %s, by HTTP, and not CLEANUPD_SERVER (%s).\n", listen,
					terminal.Printable(server))
			}
			answer, err := checkHealth(ctx, listen, certificate, ready)
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), answer)
			}
			return err
		},
	}
	f := cmd.Flags()
	flags.AddSettingsFile(f)
	f.StringVar(&listen, "http-listen", DefaultConfig().HTTPListen, "the address for REST, as given to serve")
	f.StringVar(&certificate, "tls-cert", "",
		"the certificate of both listeners, with its chain: a PEM file; no other one is trusted")
	f.BoolVar(&ready, "ready", false, "check also whether it can write to its database")
	return cmd
}

// checkHealth returns the server's answer, and as an error the server's message if it is not healthy.
func checkHealth(ctx context.Context, listen, certificate string, ready bool) (string, error) {
	if err := flags.CheckAddress("--http-listen", listen); err != nil {
		return "", err
	}
	host, port, _ := net.SplitHostPort(listen)
	if ip := net.ParseIP(host); host == "" || ip.IsUnspecified() {
		host = "localhost"
	}
	scheme, path, transport := "http", "/healthz", &http.Transport{DisableKeepAlives: true}
	if ready {
		path = "/readyz"
	}
	if certificate != "" {
		expected, err := readCertificate(certificate)
		if err != nil {
			return "", err
		}
		scheme = "https"
		transport.TLSClientConfig = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: true, //nolint:gosec // VerifyConnection compares it
			VerifyConnection: func(state tls.ConnectionState) error {
				if !bytes.Equal(state.PeerCertificates[0].Raw, expected.Raw) {
					return errors.New("its certificate is not the one in --tls-cert")
				}
				return nil
			},
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+net.JoinHostPort(host, port)+path, nil)
	if err != nil {
		return "", flags.Errorf("--http-listen: %w", err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", fmt.Errorf("the server on %s does not answer: %w", listen, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err == nil && resp.StatusCode != http.StatusOK {
		var failure struct{ Message string }
		_ = json.Unmarshal(body, &failure) // other answers are printed as they are
		err = errors.New(cmp.Or(failure.Message, string(body)))
	}
	return terminal.Printable(strings.TrimSpace(string(body))), err
}

func readCertificate(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, flags.Errorf("--tls-cert: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, flags.Errorf("--tls-cert: %s holds no certificate in PEM form", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, flags.Errorf("--tls-cert: %s: %w", file, err)
	}
	return certificate, nil
}
