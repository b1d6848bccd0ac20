#!/usr/bin/env python3
"""Run every command of the README's console blocks, and put what it prints below it.

python scripts/update_readme.py [FILE...]
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(\$ [^\n]*\n)(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(match: re.Match[str]) -> str:
    command = shlex.split(match[1].removeprefix("$ "))
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run([program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{match[1]}{done.stderr}")
    return f"```console\n{match[1]}{done.stdout}```"


def main() -> None:
    for name in sys.argv[1:] or ["README.md"]:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        path.write_text(BLOCK.sub(run, text), encoding="utf-8")


if __name__ == "__main__":
    main()
