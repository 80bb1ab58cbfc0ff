#!/usr/bin/env python3
"""Shows each rule of tidy.py a small tree that breaks it, and one that does not."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpp_text  # noqa: E402  (found beside this file)
import tidy  # noqa: E402

CLEAN = {
    ".clang-format": "DisableFormat: true\nSortIncludes: Never\n",
    "README.md": "Run `scripts/dev test`; see [the guide](docs/guide.md#top).\n",
    "docs/guide.md": "Up to [the readme](../README.md), or `allocator/base/a.h`.\n"
                     "`scripts/dev gpu-x` is known.\n",
    "scripts/dev": "cmd_test() { true; }\ncmd_build() { true; }\ncmd_gpu-x() { true; }\n",
    ".ci/run": "exec scripts/dev test\n",
    "CMakeLists.txt": "project(x)\nadd_subdirectory(allocator)\nadd_subdirectory(exporter)\n"
                      "add_subdirectory(tests)\n",
    "allocator/CMakeLists.txt": "add_library(a base/a.cc pool/p.cc buddy/chunk.cc\n"
                                "include/gpupool/pool.h)\n",
    "allocator/include/gpupool/pool.h": "#include <cstddef>\n",
    "allocator/base/a.h": "#include <sys/mman.h>\n",
    "allocator/base/a.cc": '#include "base/a.h"\n\n#include <vector>\n',
    "allocator/buddy/chunk.h": "int chunk();\n",
    "allocator/buddy/chunk.cc": '#include "buddy/chunk.h"\n\n#include "base/a.h"\n',
    "allocator/pool/p.cc": '#include "buddy/chunk.h"\n#include "gpupool/pool.h"\n',
    "exporter/CMakeLists.txt": "add_library(e e.cc)\n",
    "exporter/e.cc": '#include <prometheus/registry.h>\n\n#include "gpupool/pool.h"\n',
    "tests/CMakeLists.txt": "foreach(folder unit)\n",
    "tests/unit/CMakeLists.txt": "gpupool_test(a_test unit SOURCES a_test.cc)\n",
    "tests/unit/a_test.cc": "TEST(A, Adds) { EXPECT_EQ(1 + 1, 2); }\n",
}


def statement_lines(count):
    return "".join(f"  a({number});\n" for number in range(count))


class TidyTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        for path, text in CLEAN.items():
            self.write(path, text)

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def append(self, path, text):
        self.write(path, (self.root / path).read_text(encoding="utf-8") + text)

    def assert_finds(self, rule, path, times=1):
        found = tidy.findings(self.root)
        self.assertEqual([(finding.rule, finding.path) for finding in found],
                         [(rule, path)] * times, "\n".join(map(str, found)))

    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual(tidy.findings(self.root), [])

    def test_every_rule_is_tried_here(self):
        source = pathlib.Path(__file__).read_text(encoding="utf-8")
        for rule in tidy.RULES:
            self.assertIn(f'assert_finds("{rule.__name__}"', source)

    def test_upward(self):
        self.append("allocator/base/a.cc", '#include "pool/p.h"\n')
        self.assert_finds("ladder", "allocator/base/a.cc")

    def test_sideways_past_the_interface(self):
        self.write("allocator/buddy/bits.h", "")
        self.append("allocator/buddy/chunk.cc", '#include "buddy/bits.h"\n')
        self.write("allocator/runs/run_table.h", '#include "buddy/chunk.h"\n#include "buddy/bits.h"\n')
        self.append("allocator/pool/p.cc", '#include "runs/run_table.h"\n')
        self.assert_finds("ladder", "allocator/runs/run_table.h")

    def test_third_party_in_the_allocator(self):
        self.append("allocator/pool/p.cc", "#include <prometheus/registry.h>\n"
                    "#include <yaml-cpp/yaml.h>\n#include <civetweb.h>\n#include <zlib.h>\n")
        self.assert_finds("ladder", "allocator/pool/p.cc", times=4)

    def test_cuda_outside_its_folder(self):
        self.append("allocator/pool/p.cc", "#include <cuda_runtime_api.h>\n#include <cuda.h>\n")
        self.assert_finds("ladder", "allocator/pool/p.cc", times=2)

    def test_cuda_in_its_folder(self):
        self.write("allocator/backend/cuda_backend.cc", "#include <cuda.h>\n")
        self.append("allocator/CMakeLists.txt", "# backend/cuda_backend.cc\n")
        self.assertEqual(tidy.findings(self.root), [])

    def test_public_header_includes_a_rung(self):
        self.append("allocator/include/gpupool/pool.h", '#include "base/a.h"\n')
        self.assert_finds("ladder", "allocator/include/gpupool/pool.h")

    def test_allocator_includes_the_exporter(self):
        self.append("allocator/pool/p.cc", '#include "gpupool/exporter/exporter.h"\n')
        self.assert_finds("ladder", "allocator/pool/p.cc")

    def test_unknown_rung(self):
        self.write("allocator/misc/m.h", "")
        self.append("tests/unit/a_test.cc", '#include "misc/m.h"\n')
        self.assert_finds("ladder", "allocator/misc/m.h")

    def test_commented_include_is_none(self):
        self.append("allocator/base/a.cc", '/*\n#include "pool/p.h"\n*/\n')
        self.assertEqual(tidy.findings(self.root), [])

    def test_exporter_reaches_inside(self):
        self.append("exporter/e.cc", '#include "base/a.h"\n')
        self.assert_finds("public_only", "exporter/e.cc")

    def test_baseline_reaches_inside(self):
        self.write("bench/baselines/b.cc", '#include "base/a.h"\n')
        self.append("CMakeLists.txt", "add_library(b bench/baselines/b.cc)\n")
        self.assert_finds("public_only", "bench/baselines/b.cc")

    def test_product_includes_tests(self):
        self.append("allocator/pool/p.cc", "#include <tests/support/model.h>\n")
        found = tidy.findings(self.root)
        self.assertIn("tests_stay_inside", [finding.rule for finding in found])

    def test_tools_include_tests(self):
        self.write("tools/t.cc", "#include <tests/support/model.h>\n")
        self.append("CMakeLists.txt", "add_executable(t tools/t.cc)\n")
        self.assert_finds("tests_stay_inside", "tools/t.cc")

    def test_printing(self):
        self.append("allocator/pool/p.cc", "void f() {\n  std::cerr << 1;\n  printf(x);\n}\n")
        self.assert_finds("quiet", "allocator/pool/p.cc", times=2)

    def test_formatting_into_memory_is_no_printing(self):
        self.append("allocator/pool/p.cc", "#include <cstdio>\nvoid f() { snprintf(a, 1, b); }\n"
                    "// printf(1) is not called here\n")
        self.assertEqual(tidy.findings(self.root), [])

    def test_long_file(self):
        self.append("allocator/base/a.cc", "int a;\n" * tidy.MAX_LINES)
        self.assert_finds("lengths", "allocator/base/a.cc")

    def test_tests_may_be_longer(self):
        self.append("tests/unit/a_test.cc", "int a;\n" * 600)
        self.assertEqual(tidy.findings(self.root), [])
        self.append("tests/unit/a_test.cc", "int a;\n" * 100)
        self.assert_finds("lengths", "tests/unit/a_test.cc")

    def test_long_function(self):
        self.append("allocator/base/a.cc", "int f() {\n" + statement_lines(68) + "}\n")
        self.assertEqual(tidy.findings(self.root), [])
        self.append("allocator/base/a.cc", "int g() {\n" + statement_lines(69) + "}\n")
        self.assert_finds("function_lengths", "allocator/base/a.cc")

    def test_long_test_case(self):
        self.append("tests/unit/a_test.cc", "TEST(A, B) {\n" + statement_lines(69) + "}\n")
        self.assert_finds("function_lengths", "tests/unit/a_test.cc")

    def test_long_python_function(self):
        self.write("scripts/a.py", "def f(a):\n" + "    a()\n" * 70)
        self.assert_finds("function_lengths", "scripts/a.py")

    def test_leftovers(self):
        for text in ("// TO" "DO: later", "int a;  // FIX" "ME", "TEST(A, DIS" "ABLED_B) {}",
                     "void f() { GTEST_" "SKIP(); }", "void f() { EXPECT_TRUE(tr" "ue); }",
                     'auto p = "/wo' 'rk/main/x";', 'auto p = "/home/' 'someone/x";'):
            with self.subTest(text):
                self.write("tests/unit/a_test.cc", text + "\n")
                self.assert_finds("leftovers", "tests/unit/a_test.cc")

    def test_machine_path_in_a_document(self):
        self.append("docs/guide.md", "see /wo" "rk/x\n")
        self.assert_finds("leftovers", "docs/guide.md")

    def test_other_paths_are_fine(self):
        self.append("docs/guide.md", "see framework/x, /workspace, ./work/x and the home page\n")
        self.assertEqual(tidy.findings(self.root), [])

    def test_commented_out_code(self):
        for text in ("// return a + b;", "// if (a == b) {", "//count_ = 0;", "// }",
                     "// auto x = f(1);", "// pool.trim(0);"):
            with self.subTest(text):
                self.write("allocator/base/a.cc", '#include "base/a.h"\n' + text + "\n")
                self.assert_finds("old_code", "allocator/base/a.cc")

    def test_prose_and_examples_are_no_code(self):
        self.append("allocator/base/a.h", "//   auto x = f(1);\n// It returns a block; a free one;\n"
                    "// held = live + free;\n// (see above);\n// sizes (in bytes) count;\n")
        self.assert_finds("old_code", "allocator/base/a.h")  # the equation alone looks like code

    def test_orphan_source(self):
        self.write("allocator/base/lost.cc", "")
        self.assert_finds("orphans", "allocator/base/lost.cc")

    def test_a_longer_name_does_not_count(self):
        self.write("allocator/base/a_.cc", "")
        self.append("allocator/CMakeLists.txt", "# base/a_.cc.in base/extra_a_.cc\n")
        self.assert_finds("orphans", "allocator/base/a_.cc")

    def test_orphan_header(self):
        self.write("allocator/base/lost.h", "")
        self.assert_finds("orphans", "allocator/base/lost.h")

    def test_headers_included_from_the_root_or_beside(self):
        self.write("exporter/config/x.h", "")
        self.write("exporter/config/y.h", "")
        self.append("exporter/e.cc", '#include "exporter/config/x.h"\n')
        self.append("tests/unit/a_test.cc", '#include "config/y.h"\n')
        self.assertEqual(tidy.findings(self.root), [])

    def test_orphan_test(self):
        self.write("tests/unit/b_test.cc", "")
        self.assert_finds("orphans", "tests/unit/b_test.cc")

    def test_orphan_test_script(self):
        self.write("tests/unit/serve_test.py", "")
        self.assert_finds("orphans", "tests/unit/serve_test.py")

    def test_scripts_named_by_a_loop(self):
        self.write("tests/unit/serve_test.py", "")
        self.write("tests/unit/stop_test.py", "")
        self.append("tests/unit/CMakeLists.txt",
                    "foreach(name serve)\n  add_test(COMMAND ${here}/${name}_test.py)\n")
        self.assert_finds("orphans", "tests/unit/stop_test.py")

    def test_orphan_folder(self):
        self.write("tests/stress/CMakeLists.txt", "")
        self.assert_finds("orphans", "tests/stress/CMakeLists.txt")

    def test_folder_that_the_root_adds(self):
        self.write("tests/unit/deep/CMakeLists.txt", "")
        self.append("CMakeLists.txt", "add_subdirectory(tests/unit/deep)\n")
        self.assertEqual(tidy.findings(self.root), [])

    def test_dead_link(self):
        self.append("docs/guide.md", "[x](missing.md) [y](https://example.org/z) [z](#top)\n")
        self.assert_finds("links", "docs/guide.md")

    def test_dead_file_name(self):
        self.append("docs/guide.md", "`allocator/base/gone.h` and `build/release/bin/x`\n")
        self.assert_finds("links", "docs/guide.md")

    def test_unknown_command(self):
        self.append("README.md", "Then `scripts/dev fly`.\n")
        self.assert_finds("commands", "README.md")

    def test_readme_without_the_test_command(self):
        self.write("README.md", "Nothing.\n")
        self.assert_finds("commands", "README.md")

    def test_ci_runs_something_else(self):
        self.write(".ci/run", "exec scripts/dev build\n")
        self.assert_finds("commands", ".ci/run")

    def test_badly_formatted(self):
        tool = shutil.which("clang-format")
        if not tool or "version 14." not in subprocess.run(
                [tool, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout:
            return  # the rule asks version 14 alone
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.assertEqual(tidy.findings(self.root), [])
        self.append("allocator/base/a.h", "int   a ;\n")
        self.assert_finds("formatted", "allocator/base/a.h")


class CppTextTest(unittest.TestCase):
    def names(self, text):
        return [name for _, _, name in cpp_text.functions(text)]

    def test_functions_are_found(self):
        self.assertEqual(self.names("""
namespace a::b {
class C : public D {
 public:
  explicit C(int x)
      : x_{{x}}, y_(f(1)), z_{2} {}
  ~C() override { g(); }
  int size() const noexcept { return [] { return 1; }(); }
  bool operator==(const C& other) const { return true; }
  std::vector<int> list = {1, 2};
 private:
  struct Inner { int a = 0; };
};
enum class E { a, b };
constexpr int kTable[] = {f(1), f(2)};
template <typename T> auto h(T t) -> decltype(t) { if (t) { return t; } }
}  // namespace
TEST_F(Suite, Name) { const char* s = "}"; char c = '{'; }
"""), ["C", "~C", "size", "operator==", "h", "TEST_F"])

    def test_lines_are_those_of_the_file(self):
        self.assertEqual(list(cpp_text.functions("#define X {\n/* { */\nint f(\n    int a) {\n}\n")),
                         [(3, 5, "f")])

    def test_digit_separators_are_no_literals(self):
        self.assertEqual(self.names("int a = 1'000'000; int f() { return 2'000; } int g() {}"),
                         ["f", "g"])


if __name__ == "__main__":
    unittest.main()
