#include "exporter/discovery/process_id.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>

namespace gpupool::internal {
namespace {

// Of /proc/PID/stat, counted from the state, which follows the name in brackets.
constexpr int kFieldsToStartTime = 19;
// PROC_PID_INIT_INO of the kernel.
constexpr const char* kMachinesOwn = "pid:[4026531836]";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string process_start(pid_t pid) {
  const std::string stat = first_line("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');  // the name may have brackets of its own
  if (name_end == std::string::npos) return {};
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return {};
  for (int i = 0; i < kFieldsToStartTime; ++i) fields >> field;
  if (!fields) return {};
  return first_line("/proc/sys/kernel/random/boot_id") + "/" + field;
}

bool may_exist(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

bool may_run(pid_t pid, const std::string& start) {
  if (!may_exist(pid)) return false;
  const std::string now = process_start(pid);
  if (!now.empty()) return now == start;
  // What is there and not shown: a zombie, which is done, or somebody else's.
  const std::string stat = first_line("/proc/" + std::to_string(pid) + "/stat");
  return stat.empty();
}

std::string pid_namespace() {
  std::array<char, 64> target{};
  const ssize_t length = readlink("/proc/self/ns/pid", target.data(), target.size());
  if (length <= 0) return {};
  const std::string name(target.data(), static_cast<std::size_t>(length));
  if (name == kMachinesOwn) return {};
  const std::size_t begin = name.find('[');
  const std::size_t end = name.find(']');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return name.substr(begin + 1, end - begin - 1);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

}  // namespace gpupool::internal
