package daemon

import "syscall"

// processAttributes makes a server end with this process, even if this process is killed.
func processAttributes(owner *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGQUIT}
}
