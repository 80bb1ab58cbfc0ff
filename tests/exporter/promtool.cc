#include "tests/exporter/promtool.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace gpupool::testing_support {

std::string check_metrics(const std::string& text) {
  static int count = 0;
  const auto file = std::filesystem::temp_directory_path() /
                    ("gpupool-metrics-" + std::to_string(getpid()) + "-" + std::to_string(count++));
  std::ofstream(file, std::ios::binary) << text;
  const std::string command = "promtool check metrics < '" + file.string() + "' 2>&1";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "promtool cannot be started";
  std::string said;
  std::array<char, 1024> buffer;
  while (const std::size_t got = fread(buffer.data(), 1, buffer.size(), pipe)) {
    said.append(buffer.data(), got);
  }
  const int status = pclose(pipe);
  std::filesystem::remove(file);
  if (status != 0 && said.empty()) said = "promtool failed without a word";
  return said;
}

}  // namespace gpupool::testing_support
