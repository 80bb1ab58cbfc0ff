// One scenario in a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/generator.h"

namespace gpupool::test {
namespace {

constexpr unsigned kSecondsPerTrial = 60;
constexpr int kFailed = 1;
constexpr int kFaultHit = 2;

[[noreturn]] void run_child(const Scenario& scenario, int report) {
  alarm(kSecondsPerTrial);  // a trial that hangs is one that fails
  dup2(report, STDERR_FILENO);
  World world(scenario.world);
  const std::string text = world.run(scenario.list).value_or("");
  (void)!write(report, text.data(), text.size());
  // Without the world's end: one that failed may be in any state.
  if (!text.empty()) _exit(kFailed);
  _exit(world.faulty.failed_count() > 0 ? kFaultHit : 0);
}

std::string read_all(int from) {
  std::string text;
  char part[4096];
  for (ssize_t length; (length = read(from, part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(length));
  }
  return text;
}

}  // namespace

Trial try_scenario(const Scenario& scenario) {
  int ends[2];
  if (pipe(ends) != 0) return {std::string("no pipe: ") + std::strerror(errno), false};
  const pid_t child = fork();
  if (child < 0) return {std::string("no child process: ") + std::strerror(errno), false};
  if (child == 0) {
    close(ends[0]);
    run_child(scenario, ends[1]);
  }
  close(ends[1]);
  std::string text = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kFailed;
  if (code == 0 || code == kFaultHit) return {std::nullopt, code == kFaultHit};
  if (WIFSIGNALED(status)) text += "\nended by signal " + std::to_string(WTERMSIG(status));
  return {text, false};
}

}  // namespace gpupool::test
