"""OpenMP code of clang on GNU's runtime: every loop gives what it gives without threads."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

TEMPLATES = Path(__file__).parents[3] / "src" / "kernel_builder" / "templates"
SCHEDULES = ("static", "static, 1", "static, 7", "dynamic", "dynamic, 5", "guided", "guided, 3", "runtime", "auto")
TYPES = ("int", "unsigned", "long", "unsigned long")
LOOPS = {
    "up": "T i = 3; i < limit; i += 2",
    "down": "T i = limit; i > 3; i -= 3",
    "empty": "T i = limit; i < 3; i++",
    "one": "T i = 3; i < 4; i++",
}
HEAD = """\
#include <omp.h>
#include <cstdio>
#include <cstdlib>
#include <vector>
static int failed;
static void check(bool right, const char *what) { if (!right) { std::printf("wrong: %s\\n", what); failed = 1; } }
"""
LOOP = """\
template <class T> static void NAME(T limit) {
  std::vector<int> seen(limit + 2), wanted(limit + 2);
  long sum = 0, expected = 0;
  T last = 0, expected_last = 0;
  for (LOOP) { wanted[i]++; expected += i; expected_last = i; }
#pragma omp parallel for schedule(SCHEDULE) reduction(+ : sum) lastprivate(last) num_threads(5)
  for (LOOP) {
#pragma omp atomic
    seen[i]++;
    sum += i;
    last = i;
  }
  check(seen == wanted && sum == expected && last == expected_last, "NAME");
}
"""
OTHERS = """\
static void regions() {
  int threads = 0, singles = 0, masters = 0, in_critical = 0, serial = -1, nested = 0;
  std::vector<int> order, part(2);
#pragma omp parallel num_threads(4)
  {
#pragma omp atomic
    threads++;
#pragma omp single
    singles++;
#pragma omp master
    masters++;
    for (int k = 0; k < 1000; k++) {
#pragma omp critical(mine)
      in_critical++;
    }
#pragma omp barrier
#pragma omp for ordered schedule(dynamic, 1)
    for (int k = 0; k < 40; k++) {
#pragma omp ordered
      order.push_back(k);
    }
#pragma omp sections
    {
#pragma omp section
      part[0] = 1;
#pragma omp section
      part[1] = 2;
    }
#pragma omp single
    {
#pragma omp parallel if (0)
      serial = omp_get_num_threads() * 10 + omp_get_thread_num();
    }
#pragma omp for schedule(dynamic, 1)
    for (int k = 0; k < 8; k++) {
#pragma omp parallel for if (k > 100) schedule(dynamic, 2) reduction(+ : nested)
      for (int j = 0; j < 10; j++) nested++;
    }
  }
  check(threads == 4, "threads");
  check(singles == 1 && masters == 1, "single, master");
  check(in_critical == 4000, "critical");
  check(serial == 10, "a region of one thread");
  check(part[0] == 1 && part[1] == 2, "sections");
  for (int k = 0; k < 40; k++) check(order.size() == 40 && order[k] == k, "ordered");
  check(nested == 80, "nested");
  int largest = 0;
#pragma omp parallel for collapse(2) reduction(max : largest)
  for (int a = 0; a < 30; a++) for (int b = 0; b < 30; b++) largest = a * b > largest ? a * b : largest;
  check(largest == 29 * 29, "collapse");
  omp_lock_t lock;
  omp_nest_lock_t again;
  omp_init_lock(&lock);
  omp_init_nest_lock(&again);
  int held = 0;
#pragma omp parallel num_threads(4)
  for (int k = 0; k < 1000; k++) {
    omp_set_lock(&lock);
    held++;
    omp_unset_lock(&lock);
    omp_set_nest_lock(&again);
    omp_unset_nest_lock(&again);
  }
  omp_destroy_lock(&lock);
  check(held == 4000, "lock");
}
"""


def program() -> str:
    loops: list[str] = [HEAD, OTHERS]
    calls: list[str] = ["regions();"]
    for name, loop in LOOPS.items():
        for number, schedule in enumerate(SCHEDULES):
            own = f"{name}_{number}"
            loops.append(LOOP.replace("NAME", own).replace("LOOP", loop).replace("SCHEDULE", schedule))
            calls += [f"{own}<{type_}>(1001);" for type_ in TYPES]
    loops.append(
        f"static void many() {{\n  int {' = 0, '.join(f'v{n}' for n in range(40))} = 0;\n"
        f"#pragma omp parallel num_threads(3)\n  {{\n#pragma omp critical\n    {{ "
        + " ".join(f"v{n} += {n};" for n in range(40))
        + ' }\n  }\n  check(v39 == 117 && v0 == 0 && v20 == 60, "many variables");\n}\n'
    )
    calls.append("many();")
    return "\n".join([*loops, "int main() {", *calls, "return failed; }"])


def test_clangs_openmp_runs_on_gnus_runtime(tmp_path: Path) -> None:
    found: Mapping[str, str | None] = {name: shutil.which(name) for name in ("clang++", "g++")}
    if None in found.values():
        pytest.skip("needs clang++ and g++")
    (tmp_path / "a.cpp").write_text(program(), encoding="utf-8")
    clang, gcc = found["clang++"], found["g++"]
    assert clang is not None
    assert gcc is not None
    include = ["-isystem", str(TEMPLATES / "openmp")]
    flags = ["-fopenmp", "-stdlib=libstdc++", "-O1", "-Wno-unused", *include]
    subprocess.run([clang, *flags, "-c", "a.cpp", "-o", "a.o"], check=True, cwd=tmp_path)
    shim = [clang, "-x", "c", "-c", "-O2", "-w", "-fno-builtin", str(TEMPLATES / "floor" / "openmp.c")]
    subprocess.run([*shim, "-o", "openmp.o"], check=True, cwd=tmp_path)
    subprocess.run([gcc, "a.o", "openmp.o", "-fopenmp", "-o", "run"], check=True, cwd=tmp_path)
    for schedule in ("static", "dynamic,3"):
        environment = {"OMP_SCHEDULE": schedule, "OMP_NESTED": "true"}
        done = subprocess.run(
            [tmp_path / "run"], env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
