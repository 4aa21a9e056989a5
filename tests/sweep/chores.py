"""What the pool's tests have their workers do; imported by the workers."""

import os
import signal
import subprocess
import time


def work(task, device):
    kind, value = task
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "exit":
        os._exit(3)
    time.sleep(0.01)
    return value * 2, device, os.getpid()


def kill_yourself_soon(task, device):
    # After the outcome is sent, most likely while the worker is without a task.
    if task == 0:
        subprocess.Popen(["sh", "-c", f"sleep 1; kill -9 {os.getpid()}"])
    return task
