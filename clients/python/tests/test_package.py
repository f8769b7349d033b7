"""The package as its users get it, and the examples of its page."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from brigade_client import Client, SessionHandle, __version__
from server import Server

PACKAGE = Path(__file__).parent.parent
ROOT = PACKAGE.parent.parent


def examples() -> list[str]:
    text = (PACKAGE / "README.md").read_text()
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def test_a_wheel_has_all_files_and_runs_the_ten_lines(server: Server, tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--wheel-dir", str(tmp_path)]
    subprocess.run([*pip, "wheel", *options, str(PACKAGE)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"brigade_client-{__version__}-py3-none-any.whl"
    source = PACKAGE / "src"
    expected = {str(file.relative_to(source)) for file in source.rglob("*.py")}
    with zipfile.ZipFile(wheel) as files:
        names = set(files.namelist())
        metadata = files.read(f"brigade_client-{__version__}.dist-info/METADATA").decode()
    info = f"brigade_client-{__version__}.dist-info"
    licences = {f"{info}/licenses/LICENSE-{name}" for name in ("MIT", "APACHE")}
    described = {f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL")}
    assert names == expected | licences | described | {"brigade_client/py.typed"}
    assert "Requires-Dist: httpx >=0.27,<1" in metadata
    assert metadata.count("Requires-Dist:") == 1
    assert f"\nVersion: {__version__}\n" in metadata

    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(installed)
    tasks = set()
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", examples()[0]],
            env={
                "PYTHONPATH": str(installed),
                "BRIGADE_URL": server.url,
                "BRIGADE_TOKEN": server.token,
            },
            cwd=server.project,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        task, output = run.stdout.split("\n", 1)
        assert output == "done\n\n"
        tasks.add(task)
    assert len(tasks) == 1, "the same key is the same task"


def test_the_example_of_an_agent_asks_a_person(client: Client, session: SessionHandle) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "y"

    exec(examples()[1], {"client": client, "session": session, "input": answer})
    assert asked == ["run_process(echo allowed)? "]


def test_the_licences_are_those_of_the_project() -> None:
    for package in (PACKAGE, PACKAGE.parent / "typescript"):
        for name in ("LICENSE-MIT", "LICENSE-APACHE"):
            assert (package / name).read_bytes() == (ROOT / name).read_bytes()
