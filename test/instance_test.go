package test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/berth-dev/berth/test/rig"
)

// instance is one transcript's server.
type instance struct {
	suite *suite
	data  string
	log   string
	url   string
	cmd   *exec.Cmd // nil when none runs
	used  bool      // one ran
}

// start runs a server on a free port and returns once it has said that it is
// ready.
func (i *instance) start(more ...string) error {
	if i.cmd != nil {
		return errors.New("it runs already")
	}
	log, err := os.OpenFile(i.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	if more, err = rig.WithRoom(i.log+".toml", more); err != nil {
		return err
	}
	args := append([]string{"serve", "--driver", i.suite.driver, "--data", i.data, "--listen", "127.0.0.1:0", "--log-level", "debug"}, more...)
	cmd := exec.Command(i.suite.berth, args...)
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	found := readyLine.FindStringSubmatch(line[:max(0, len(line)-1)])
	if found == nil {
		cmd.Process.Kill()
		cmd.Wait()
		return fmt.Errorf("it said %q (%v)\n%s", line, err, tail(i.log))
	}
	i.cmd, i.url, i.used = cmd, found[1], true
	return nil
}

// stop sends a signal and waits for the end. After an interrupt the exit code
// must be 0.
func (i *instance) stop(s os.Signal) error {
	if i.cmd == nil {
		return errors.New("it does not run")
	}
	if err := i.cmd.Process.Signal(s); err != nil {
		return err
	}
	err := i.cmd.Wait()
	i.cmd = nil
	if s == os.Kill {
		return nil
	}
	return err
}

// clear removes every sandbox and ends the server. It starts one first if the
// transcript ended its own: sandboxes may outlive it.
func (i *instance) clear() error {
	if !i.used {
		return nil
	}
	if i.cmd == nil {
		if err := i.start(); err != nil {
			return err
		}
	}
	env := []string{"BERTH_URL=" + i.url, "BERTH_DATA=" + i.data}
	return errors.Join(i.suite.run(env, "rm", "--all", "-f"), i.stop(os.Interrupt))
}
