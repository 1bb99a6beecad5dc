package localpg

import "syscall"

// processAttributes makes the server end with this process, even if that is killed.
func processAttributes(owner *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGQUIT}
}
