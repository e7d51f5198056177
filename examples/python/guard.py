"""Runs a command that ends in time, also if the program that started it is frozen or killed: member.py needs that."""
import os, select, signal, subprocess, sys, threading, time


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def guard(timeout, program):
    """Runs program in this process group. Reads "a TIME", when the last answered request was sent, and "e SECONDS",
    in which the program has to end. Writes its exit code. It kills the group at the end, whatever ends it."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # it is sent to the group
    answered, end, asked, child, text = 0.0, float("inf"), False, None, b""
    try:
        while True:
            readable, _, _ = select.select([0], [], [], 0.05)
            part = os.read(0, 4096) if readable else None
            if part == b"":
                break  # the member is gone
            *lines, text = (text + (part or b"")).split(b"\n")
            for kind, number in (line.split() for line in lines):
                if kind == b"a":
                    answered = max(answered, float(number))
                else:
                    end = min(end, now() + float(number))
            if child is None and answered and now() < min(end, answered + timeout / 2):
                child = subprocess.Popen([program], stdin=subprocess.DEVNULL, stdout=2)
            late = now() - answered
            if late >= timeout * 2 / 3 or now() >= end:
                break
            if child and not asked and (late >= timeout / 2 or end < float("inf")):
                asked = True
                os.killpg(0, signal.SIGTERM)
            if child and child.poll() is not None:
                os.write(1, b"%d" % child.returncode)
                break
    finally:
        os.killpg(0, signal.SIGKILL)


class Command:
    """The command of a duty, under its guard. ended() is called when all of its processes have ended."""

    def __init__(self, program, env, timeout, answered, ended):
        self.code, self.over, self.asked = None, False, False
        self.process = subprocess.Popen([sys.executable, __file__, str(timeout), program], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.tell("a", answered)
        threading.Thread(target=self.await_end, args=[ended], daemon=True).start()

    def tell(self, kind, number):
        try:
            os.write(self.process.stdin.fileno(), f"{kind} {number}\n".encode())
        except (OSError, ValueError):
            pass  # the guard has ended

    def ask(self, limit):
        if not self.asked:
            self.asked = True
            self.tell("e", limit)

    def kill(self):
        """Returns whether there was something to kill."""
        if self.over:
            return False
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def await_end(self, ended):
        said = self.process.stdout.read()
        begun = now()
        while self.kill():  # what is left of the group, such as the command of a guard that was killed
            self.process.poll()
            if now() - begun > 30:
                os.kill(os.getpid(), signal.SIGKILL)  # a command that cannot be killed ends the member
            time.sleep(0.01)
        self.process.wait()
        self.code = int(said) if said else None
        self.over = True
        ended()


if __name__ == "__main__":
    guard(float(sys.argv[1]), sys.argv[2])
