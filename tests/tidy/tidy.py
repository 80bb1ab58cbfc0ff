#!/usr/bin/env python3
"""House rules that a compiler does not check.

Usage: tidy.py ROOT
Prints one line for each finding, `path:line: rule: what`, and exits 1 if there is any. The rules
are the functions in RULES; each is a generator of findings over a Tree. tidy_selftest.py shows
each of them a tree that breaks it.
"""

import ast
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpp_text  # noqa: E402  (found beside this file)

# Lower rungs first; rungs of the same number are siblings.
RUNGS = {"base": 0, "backend": 1, "stream": 2, "arena": 3, "runs": 4, "buddy": 4, "size_class": 4,
         "cache": 5, "record": 5, "pool": 6, "c_api": 7}
# A sibling may be used through this header of it alone.
INTERFACE_HEADERS = {"runs/run_table.h", "buddy/chunk.h", "size_class/slab.h"}
PUBLIC_HEADERS = ("allocator/include", "exporter/include")
SYSTEM_HEADERS = re.compile(
    r"(?:[a-z_]+|sys/\w+\.h|linux/\w+\.h|(?:std(?:def|int)|unistd|dlfcn|fcntl|pthread|sched|signal|immintrin)\.h)$")
CUDA_HEADERS = re.compile(r"(?:cuda|cu|nv|driver_types|vector_types)\w*(?:\.h|/.*)?$")
MAY_INCLUDE_CUDA = re.compile(
    r"allocator/backend/cuda_\w+\.(?:cc|h)$|allocator/include/gpupool/memory_resource\.h$")
MAY_PRINT = {"allocator/base/check.cc"}
SOURCE_FOLDERS = ("allocator", "exporter", "tools", "tests", "examples", "integrations", "bench")
MAX_LINES = 500
MAX_TEST_LINES = 700
MAX_FUNCTION_LINES = 70
CODE_SUFFIXES = {".h", ".cc", ".py", ".sh", ".cmake", ".js", ".mjs", ".ts", ".css", ".html"}
FORMATTER_VERSION = "14"
SKIPPED_FOLDERS = {".git", ".cache", "build", "__pycache__", "node_modules"}


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


class Tree:
    """The files of the project: what git knows or would add; without git, what lies there."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.paths = sorted(self._from_git() if (self.root / ".git").exists() else self._walk())
        self._texts = {}

    def _from_git(self):
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=self.root, check=True, stdout=subprocess.PIPE, text=True).stdout
        return [path for path in listing.split("\0") if path and (self.root / path).is_file()]

    def _walk(self):
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            for name in files:
                yield str((pathlib.Path(folder) / name).relative_to(self.root))

    def text(self, path):
        """The file's text; empty for what is no text."""
        if path not in self._texts:
            try:
                self._texts[path] = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                self._texts[path] = ""
        return self._texts[path]

    def exists(self, path):
        return (self.root / path).exists()

    def under(self, *folders, suffixes=(".h", ".cc")):
        for path in self.paths:
            if path.startswith(tuple(folder + "/" for folder in folders)) and \
                    path.endswith(tuple(suffixes)):
                yield path


def is_code(path):
    return pathlib.PurePath(path).suffix in CODE_SUFFIXES or \
        path.endswith("CMakeLists.txt") or path in ("scripts/dev", "scripts/gpu", "scripts/gpu-torch",
                                                    "scripts/gpu-peers", ".ci/run")


# --- the include ladder ---------------------------------------------------------------------------


def ladder(tree):
    """allocator/: a file includes its own rung, lower rungs and public headers."""
    for path in tree.under("allocator"):
        rung = path.split("/")[1]
        if rung != "include" and rung not in RUNGS:
            yield Finding(path, 1, "ladder", f"'{rung}' is no rung")
            continue
        for line, kind, name in cpp_text.includes(tree.text(path)):
            problem = _ladder_problem(tree, path, rung, kind, name)
            if problem:
                yield Finding(path, line, "ladder", problem)


def _ladder_problem(tree, path, rung, kind, name):
    if kind == "<":
        if SYSTEM_HEADERS.match(name) and not CUDA_HEADERS.match(name):
            return None
        if CUDA_HEADERS.match(name):
            return None if MAY_INCLUDE_CUDA.match(path) else \
                f"<{name}>: CUDA headers only in backend/cuda_*"
        return f"<{name}>: no third-party headers in the allocator"
    if name.startswith("gpupool/"):
        if not tree.exists(f"allocator/include/{name}"):
            return f'"{name}" is no public header of the allocator'
        if name == "gpupool/faulty_backend.h" and RUNGS.get(rung, 0) > RUNGS["backend"]:
            return f'"{name}" is for tests, the pool does not use it'
        return None
    other = name.split("/")[0]
    if rung == "include" or other not in RUNGS:
        return f'"{name}" is neither a public header nor one of a rung'
    if RUNGS[other] > RUNGS[rung]:
        return f'"{name}" is upward from {rung}'
    if RUNGS[other] == RUNGS[rung] and other != rung and name not in INTERFACE_HEADERS:
        return f'"{name}" is sideways from {rung}, past the interface header of {other}'
    return None


def public_only(tree):
    """Whatever is not the allocator knows it by its public headers alone."""
    own = {"exporter": ("exporter/",), "tools": ("tools/", "exporter/", "bench/baselines/"),
           "bench/baselines": ("bench/baselines/",), "integrations": ("integrations/",),
           "examples": ()}
    for folder, prefixes in own.items():
        for path in tree.under(folder):
            for line, kind, name in cpp_text.includes(tree.text(path)):
                if kind == "<" or _is_public(tree, name) or name.startswith(prefixes):
                    continue
                if folder == "examples" and (tree.root / path).parent.joinpath(name).exists():
                    continue
                yield Finding(path, line, "public_only",
                              f'"{name}" is not a public header, nor of {folder}/')


def _is_public(tree, name):
    return any(tree.exists(f"{folder}/{name}") for folder in PUBLIC_HEADERS)


def tests_stay_inside(tree):
    """Nothing includes tests/."""
    for path in tree.under(*SOURCE_FOLDERS):
        if path.startswith("tests/"):
            continue
        for line, _, name in cpp_text.includes(tree.text(path)):
            if name.startswith("tests/") or "/tests/" in name:
                yield Finding(path, line, "tests_stay_inside", f"{name}: nothing includes tests/")


def quiet(tree):
    """allocator/ prints nothing."""
    printing = re.compile(
        r"\b(?:v?f?printf|puts|fputs|putchar|fputc|fwrite|perror|syslog)\s*\("
        r"|\bstd::(?:cout|cerr|clog|print|println)\b|\bwrite\s*\(\s*(?:[12]|STD\w+_FILENO)\b")
    for path in tree.under("allocator"):
        if path in MAY_PRINT:
            continue
        code = cpp_text.code_only(tree.text(path))
        for match in printing.finditer(code):
            yield Finding(path, cpp_text.line_of(code, match.start()), "quiet",
                          f"'{match.group().strip()}': the allocator prints nothing")
        for line, _, name in cpp_text.includes(tree.text(path)):
            if name in ("iostream", "cstdio", "stdio.h") and \
                    not (name == "cstdio" and "snprintf" in code):
                yield Finding(path, line, "quiet", f"<{name}>: the allocator prints nothing")


# --- sizes ----------------------------------------------------------------------------------------


def lengths(tree):
    """A file is one idea."""
    for path in filter(is_code, tree.paths):
        limit = MAX_TEST_LINES if path.startswith("tests/") else MAX_LINES
        count = tree.text(path).count("\n")
        if count > limit:
            yield Finding(path, limit + 1, "lengths", f"{count} lines, at most {limit}")


def function_lengths(tree):
    for path in tree.paths:
        for first, last, name in _functions(tree, path):
            if last - first + 1 > MAX_FUNCTION_LINES:
                yield Finding(path, first, "function_lengths",
                              f"{name}: {last - first + 1} lines, at most {MAX_FUNCTION_LINES}")


def _functions(tree, path):
    if path.endswith((".h", ".cc")):
        yield from cpp_text.functions(tree.text(path))
    elif path.endswith(".py"):
        for node in ast.walk(ast.parse(tree.text(path))):
            if isinstance(node, ast.FunctionDef):
                yield node.lineno, node.end_lineno, node.name


# --- leftovers ------------------------------------------------------------------------------------

# Written in halves so that this file does not hold what it looks for.
LEFTOVERS = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
EMPTY_TESTS = re.compile(
    r"\bDIS" r"ABLED_|\bGTEST_" r"SKIP|\b(?:EXPECT|ASSERT)_TRUE\(\s*tr" r"ue\s*\)"
    r"|\b(?:EXPECT|ASSERT)_FALSE\(\s*fal" r"se\s*\)|unittest\.sk" r"ip|\.sk" r"ip\(|skip" r"Test\(")
MACHINE_PATHS = re.compile(
    r"(?<![A-Za-z0-9_.-])/(?:work|farm|home/[a-z]\w*|tmp/wt)(?:/|\b(?=[\s'\"]))")
OLD_CODE = re.compile(
    r"(?:return\b.*;|(?:if|for|while|switch) \(.*\) ?\{|\} ?(?:else ?\{)?"
    r"|[A-Za-z_][\w:.>\[\]-]*\(.*\);|#include .*"
    r"|(?:const |constexpr |static )*(?:auto|int|bool|char|double|float|size_t|std::[\w:<>, ]+)"
    r"[&*]? \w+(?: = .*|\{.*\}|\(.*\))?;|\w+ [-+|&]?= .*;)$")


def leftovers(tree):
    for path in tree.paths:
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            match = LEFTOVERS.search(line) if is_code(path) else None
            if match:
                yield Finding(path, number, "leftovers", f"'{match.group()}'")
            match = EMPTY_TESTS.search(line) if is_code(path) else None
            if match:
                yield Finding(path, number, "leftovers", f"'{match.group()}' checks nothing")
            match = MACHINE_PATHS.search(line)
            if match:
                yield Finding(path, number, "leftovers", f"'{match.group()}': a machine's path")


def old_code(tree):
    """No commented-out code. An example in a header's comment is indented by three or more."""
    for path in tree.under(*SOURCE_FOLDERS):
        for line, comment in cpp_text.comments(tree.text(path)):
            text = re.sub(r"^///?<? ?", "", comment)
            if not text.startswith("  ") and OLD_CODE.match(text.strip()):
                yield Finding(path, line, "old_code", f"'{text.strip()}'")


# --- orphans --------------------------------------------------------------------------------------


def orphans(tree):
    """Every source, test script, public header and folder of the build is named in the build."""
    for path in tree.paths:
        parts = path.split("/")
        if parts[0] not in SOURCE_FOLDERS:
            continue
        is_public_header = path.startswith(PUBLIC_HEADERS) and path.endswith(".h")
        if path.endswith(".cc") or is_public_header or _is_test_script(path):
            if not _named_in_build(tree, path):
                yield Finding(path, 1, "orphans", "no CMakeLists.txt names it")
        elif path.endswith(".h") and not _is_included(tree, path):
            yield Finding(path, 1, "orphans", "nothing includes it")
        elif parts[-1] == "CMakeLists.txt" and len(parts) > 1:
            yield from _orphan_folder(tree, path)


def _is_test_script(path):
    name = path.rsplit("/", 1)[-1]
    return path.startswith("tests/") and \
        (name.endswith("test.py") or name.startswith("test_") or name.endswith(".sh"))


def _named_in_build(tree, path):
    """Whether a CMakeLists.txt of the file's folder or one above names it, or a variable of it."""
    folder = pathlib.PurePosixPath(path).parent
    for above in (folder, *folder.parents):
        script = str(above / "CMakeLists.txt")
        name = str(pathlib.PurePosixPath(path).relative_to(above))
        if script in tree.paths and \
                re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", _expanded(tree.text(script))):
            return True
    return False


def _expanded(script):
    """A build script with what its foreach loops make of `${name}_test.py` and the like."""
    words = [script]
    for variable, items in re.findall(r"foreach\((\w+) ([^)]*)\)", script):
        for word in re.findall(rf"[\w./-]*\$\{{{variable}\}}[\w./-]*", script):
            words += [word.replace(f"${{{variable}}}", item) for item in items.split()]
    return "\n".join(words)


def _is_included(tree, header):
    name = header.rsplit("/", 1)[-1]
    for path in tree.under(*SOURCE_FOLDERS):
        if path != header and name in tree.text(path):
            for _, _, included in cpp_text.includes(tree.text(path)):
                if ("/" + header).endswith("/" + included):
                    return True
    return False


def _orphan_folder(tree, path):
    if re.search(r"^\s*project\(", tree.text(path), re.M):
        return  # a project of its own, built from outside
    folder = pathlib.PurePosixPath(path).parent
    above = next(parent for parent in folder.parents
                 if str(parent / "CMakeLists.txt") in tree.paths or str(parent) == ".")
    # By the next folder above that has a CMakeLists.txt, or by the root with its whole path.
    adders = ((above, folder.relative_to(above)), (pathlib.PurePosixPath("."), folder))
    if not any(re.search(rf"(?<![\w.-]){re.escape(str(name))}(?![\w.-])",
                         tree.text(str(adder / "CMakeLists.txt"))) for adder, name in adders):
        yield Finding(path, 1, "orphans",
                      f"{above}/CMakeLists.txt does not add {folder.relative_to(above)}")


# --- documents ------------------------------------------------------------------------------------

_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)[^)]*\)")
_FILE_NAME = re.compile(
    r"`((?:allocator|exporter|tools|integrations|tests|bench|examples|configs|dashboards|docker|docs|cmake|scripts)"
    r"/[\w./-]*[\w/])`")


def links(tree):
    """Files that documents name exist: links, and names in backticks from the root."""
    for path in tree.paths:
        if not path.endswith(".md"):
            continue
        folder = pathlib.PurePosixPath(path).parent
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for target in _LINK.findall(line):
                name = target.split("#")[0]
                if re.match(r"[a-z]+:", target) or not name:
                    continue
                if not tree.exists(folder / name):
                    yield Finding(path, number, "links", f"{target}: there is no such file")
            for name in _FILE_NAME.findall(line):
                if not tree.exists(name) and not tree.exists(folder / name):
                    yield Finding(path, number, "links", f"`{name}`: there is no such file")


def commands(tree):
    """Documents name commands that scripts/dev knows, and CI runs the README's test command."""
    script = tree.text("scripts/dev") if "scripts/dev" in tree.paths else ""
    known = set(re.findall(r"^cmd_([\w-]+)\(\)", script, re.M)) | {"help"}
    for path in tree.paths:
        if not path.endswith(".md"):
            continue
        for number, line in enumerate(tree.text(path).splitlines(), 1):
            for name in re.findall(r"scripts/dev ([a-z][a-z-]*)", line):
                if name not in known:
                    yield Finding(path, number, "commands", f"scripts/dev does not know '{name}'")
    if "README.md" in tree.paths and "scripts/dev test" not in tree.text("README.md"):
        yield Finding("README.md", 1, "commands", "the test command is missing: scripts/dev test")
    if ".ci/run" in tree.paths and \
            not re.search(r"^(?:exec )?scripts/dev test\b", tree.text(".ci/run"), re.M):
        yield Finding(".ci/run", 1, "commands", "does not run the README's test command")


def formatted(tree):
    """clang-format has nothing to change; only its version 14 is asked, others differ in taste."""
    tool = shutil.which(f"clang-format-{FORMATTER_VERSION}") or shutil.which("clang-format")
    paths = list(tree.under(*SOURCE_FOLDERS))
    if not tool or not paths:
        return
    version = subprocess.run([tool, "--version"], check=True, stdout=subprocess.PIPE, text=True)
    if not re.search(rf"version {FORMATTER_VERSION}\.", version.stdout):
        return
    done = subprocess.run([tool, "--dry-run", "-Werror", "--style=file", *paths], cwd=tree.root,
                          check=False, stderr=subprocess.PIPE, text=True)
    for place in dict.fromkeys(re.findall(r"^(.+?):(\d+):\d+: error: ", done.stderr, re.M)):
        yield Finding(place[0], int(place[1]), "formatted", "run scripts/dev format")


RULES = (ladder, public_only, tests_stay_inside, quiet, lengths, function_lengths, leftovers,
         old_code, orphans, links, commands, formatted)


def findings(root):
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def main():
    found = findings(sys.argv[1] if len(sys.argv) > 1 else ".")
    for finding in found:
        print(finding)
    print(f"tidy: {len(RULES)} rules, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
