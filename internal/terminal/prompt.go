package terminal

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// confirmed asks a question, and reports whether the answer is yes.
func Confirm(cmd *cobra.Command, question string) bool {
	fmt.Fprintf(cmd.ErrOrStderr(), "\n%s [y/N] ", question)
	text := ReadAnswer(cmd.Context(), cmd.InOrStdin())
	return text == "y" || text == "yes"
}

// answer reads a line, in lower case; empty when the context ends first.
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
