"""Execution of the shell steps of the example workflow, as in GitHub Actions but in a local repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
IDENTITY = {f"GIT_{role}_{what}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


class WorkflowRepository:
    """Git repository for the files of examples/ci, with a folder of programs that contains `ragauge`."""

    def __init__(self, folder):
        self.folder, self.summary, self.programs = folder / "repository", folder / "summary.md", folder / "programs"
        self.folder.mkdir()
        self.programs.mkdir()
        program = self.programs / "ragauge"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ragauge "$@"\n')
        program.chmod(0o755)
        self.git("init", "-q", "-b", "main")
        self.git("commit", "-q", "--allow-empty", "-m", "empty")

    def git(self, *words):
        environment = {**os.environ, **IDENTITY}
        done = subprocess.run(
            ["git", *words], cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def copy_example(self):
        shutil.copytree(ROOT / "examples" / "ci", self.folder, dirs_exist_ok=True)

    def commit(self, message):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", message)

    def run_steps(self, base):
        """Run the steps of a pull request; return the exit code of each step by its name."""
        workflow = yaml.safe_load((ROOT / "examples" / "ci" / "gate.yml").read_text())
        environment = {
            **os.environ,
            **IDENTITY,
            **{name: str(value) for name, value in workflow["env"].items()},
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_WORKSPACE": str(self.folder),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "BASE": base,
        }
        self.summary.unlink(missing_ok=True)
        codes, failed, self.output = {}, False, ""
        for step in workflow["jobs"]["gate"]["steps"]:
            if "run" not in step or step["name"] == "Install" or (failed and step.get("if") != "always()"):
                continue
            words = ["bash", "-e", "-o", "pipefail", "-c", step["run"]]
            done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
            codes[step["name"]] = done.returncode
            self.output += done.stdout + done.stderr
            failed = failed or done.returncode != 0
        return codes
