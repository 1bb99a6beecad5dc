package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func CanAsk() bool { return term.IsTerminal(int(os.Stdin.Fd())) }

// IsInteractive reports whether both input and output are terminals.
func IsInteractive() bool { return CanAsk() && term.IsTerminal(int(os.Stdout.Fd())) }

func Confirm(cmd *cobra.Command, question string) bool {
	fmt.Fprintf(cmd.ErrOrStderr(), "\n%s [y/N] ", question)
	text := ReadAnswer(cmd.Context(), cmd.InOrStdin())
	return text == "y" || text == "yes"
}

// ReadAnswer returns the answer in lower case; "" if the context ends first.
func ReadAnswer(ctx context.Context, in io.Reader) string {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(in).ReadString('\n')
		line <- strings.ToLower(strings.TrimSpace(text))
	}()
	select {
	case text := <-line:
		return text
	case <-ctx.Done():
		return ""
	}
}
