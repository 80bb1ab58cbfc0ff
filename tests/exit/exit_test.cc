// B7: a pool that static objects own until the process ends, its exporter and upkeep threads on.
// 50 processes for each way to end: the exit code is the program's, none crashes in a destructor or
// hangs, and nobody who destroys static objects calls the driver (the probe's backend aborts).
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

namespace gpupool::test {
namespace {

constexpr int kRuns = 50;
// Ending takes the exporter up to 2 s, so that they run side by side, as many as a small machine
// can take.
constexpr int kAtATime = 25;
// For all of them: not over 5 s each.
constexpr std::chrono::seconds kMost{5 * kAtATime};
constexpr int kHung = -1000;

pid_t start_probe(const char* setting, const char* how) {
  const pid_t child = fork();
  if (child == 0) {
    const int nowhere = open("/dev/null", O_WRONLY);
    if (std::string(how) == "exception") dup2(nowhere, STDERR_FILENO);  // its what()
    execl(GPUPOOL_EXIT_PROBE, GPUPOOL_EXIT_PROBE, setting, how, nullptr);
    _exit(127);
  }
  return child;
}

/// The exit code, the negative number of the signal that ended it, or kHung.
int wait_for(pid_t child, std::chrono::steady_clock::time_point end) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return kHung;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

struct Ending {
  const char* setting;
  const char* how;
  int expected;
  friend std::ostream& operator<<(std::ostream& out, const Ending& ending) {
    return out << ending.setting << ", " << ending.how;
  }
};

class CaseB7 : public testing::TestWithParam<Ending> {};

TEST_P(CaseB7, EndsAsTheProgramMeans) {
  const Ending& ending = GetParam();
  for (int run = 0; run < kRuns; run += kAtATime) {
    std::vector<pid_t> probes;
    for (int i = 0; i < kAtATime; ++i) probes.push_back(start_probe(ending.setting, ending.how));
    const auto end = std::chrono::steady_clock::now() + kMost;
    for (const pid_t probe : probes) EXPECT_EQ(wait_for(probe, end), ending.expected);
    if (HasFailure()) return;
  }
}

std::string name_of(const testing::TestParamInfo<Ending>& info) {
  std::string name = std::string(info.param.setting) + "_" + info.param.how;
  for (char& letter : name) {
    if (letter == '-') letter = '_';
  }
  return name;
}

// An exception that nobody catches ends the process by abort(): no destructor runs.
INSTANTIATE_TEST_SUITE_P(
    Exits, CaseB7,
    testing::Values(Ending{"lazily", "return", 42}, Ending{"lazily", "exit", 42},
                    Ending{"lazily", "exit-elsewhere", 42}, Ending{"lazily", "exception", -SIGABRT},
                    Ending{"eagerly", "return", 42}, Ending{"eagerly", "exit", 42},
                    Ending{"eagerly", "exception", -SIGABRT}),
    name_of);

}  // namespace
}  // namespace gpupool::test
