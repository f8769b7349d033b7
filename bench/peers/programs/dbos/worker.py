"""Workflows of DBOS, and the threads that start them.

usage: worker.py WORK COUNT IN_FLIGHT STEPS (see ../src/worker_script.rs)
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from dbos import DBOS

WORK = sys.argv[1]
COUNT, IN_FLIGHT, STEPS = map(int, sys.argv[2:])

DBOS(config={
    "name": "peers",
    "system_database_url": os.environ["DATABASE_URL"],
    "run_admin_server": False,
    "log_level": "ERROR",
})


@DBOS.workflow()
def durable() -> int:
    return 0


@DBOS.step()
def one() -> int:
    return 1


@DBOS.workflow()
def steps() -> int:
    return sum(one() for _ in range(STEPS))


WORKFLOW, EXPECTED = {"durable": (durable, 0), "steps": (steps, STEPS)}[WORK]


def run_lane(lane: int) -> None:
    for _ in range(lane, COUNT, IN_FLIGHT):
        result = DBOS.start_workflow(WORKFLOW).get_result()
        if result != EXPECTED:
            raise RuntimeError(f"result {result}")


DBOS.launch()
DBOS.start_workflow(WORKFLOW).get_result()
with ThreadPoolExecutor(IN_FLIGHT) as threads:
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in threads.map(run_lane, range(IN_FLIGHT)):
        pass
    print("done", flush=True)
DBOS.destroy()
