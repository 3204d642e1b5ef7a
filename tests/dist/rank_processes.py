"""The processes of a program's ranks, for tests in which ranks fail: what they print, how they end, what they leave."""
import os
import signal
import socket
import subprocess
import tempfile
import time

LOST, FAILED = 75, 1  # exit codes: another rank is to blame, or this one


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def listening_ports(pid):
    inodes, ports = set(), set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                inodes.add(target[len("socket:["):-1])
    except OSError:  # it has ended
        pass
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not os.path.exists(table):
            continue
        with open(table) as lines:
            for fields in map(str.split, list(lines)[1:]):
                if fields[3] == "0A" and fields[9] in inodes:  # LISTEN
                    ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


def shared_memory(pid):
    """Files in /dev/shm that the process has mapped."""
    try:
        with open(f"/proc/{pid}/maps") as lines:
            return {line.split(maxsplit=5)[5].strip() for line in lines if "/dev/shm/" in line}
    except OSError:
        return set()


class Processes:
    """A process for each rank. `start(rank, variables, output)` starts one."""

    def __init__(self, size, start, address="127.0.0.1", port=None, local=True):
        self.size, self.port = size, port or free_port()
        self.processes, self.outputs, self.ends = [], [], {}
        self.ports, self.shared = {self.port}, set()
        for rank in range(size):
            variables = dict(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank if local else 0),
                             LOCAL_WORLD_SIZE=str(size if local else 1), NODE_RANK=str(0 if local else rank),
                             MASTER_ADDR=address, MASTER_PORT=str(self.port), OMP_NUM_THREADS="1",
                             TORCH_CPP_LOG_LEVEL="ERROR")
            output = tempfile.TemporaryFile()
            self.outputs.append(output)
            self.processes.append(start(rank, dict(os.environ, **variables), output))

    def said(self, rank):
        return os.pread(self.outputs[rank].fileno(), 1 << 20, 0).decode(errors="replace")

    def status(self, rank):
        return self.processes[rank].returncode

    def note_ends(self):
        for rank, process in enumerate(self.processes):
            if rank not in self.ends and process.poll() is not None:
                self.ends[rank] = time.monotonic()
        return self.ends

    def all_end(self, seconds):
        return wait_for(lambda: len(self.note_ends()) == self.size, seconds)

    def look(self):
        """Notes what the processes hold that must not outlive them."""
        for process in self.processes:
            self.ports |= listening_ports(process.pid)
            self.shared |= shared_memory(process.pid)

    def kill(self):
        """Ends those that are left. Their ranks."""
        left = [rank for rank, process in enumerate(self.processes) if process.poll() is None]
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        return left

    def leftovers(self):
        """Of the processes, which have all ended: what must not exist any more."""
        for process in self.processes:
            try:
                os.killpg(process.pid, 0)  # each leads a group of its own
                yield f"a child of process {process.pid} is left"
            except OSError:
                pass
        yield from (f"port {port} is still open" for port in sorted(self.ports) if not is_free(port))
        yield from (f"{file} is left" for file in sorted(self.shared) if os.path.exists(file))

    def close(self):
        for output in self.outputs:
            output.close()


def on_this_machine(command, **options):
    """A function for Processes, which starts the command in a process group of its own."""
    return lambda rank, variables, output: subprocess.Popen(command, stdout=output, stderr=output, env=variables,
                                                            start_new_session=True, **options)
