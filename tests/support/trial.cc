// One scenario in a process of its own.
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "tests/support/generator.h"

namespace gpupool::test {
namespace {

constexpr unsigned kSecondsPerTrial = 60;

[[noreturn]] void run_child(const Scenario& scenario, int report) {
  alarm(kSecondsPerTrial);  // a trial that hangs is one that fails
  dup2(report, STDERR_FILENO);
  std::string text;
  {
    World world(scenario.world);
    text = world.run(scenario.list).value_or("");
    // A world that failed may be in any state; its end could hide what it said.
    if (!text.empty()) {
      (void)!write(report, text.data(), text.size());
      _exit(1);
    }
  }
  _exit(0);
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

std::optional<std::string> try_scenario(const Scenario& scenario) {
  int ends[2];
  if (pipe(ends) != 0) return std::string("no pipe: ") + std::strerror(errno);
  const pid_t child = fork();
  if (child < 0) return std::string("no child process: ") + std::strerror(errno);
  if (child == 0) {
    close(ends[0]);
    run_child(scenario, ends[1]);
  }
  close(ends[1]);
  std::string text = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (WIFSIGNALED(status)) text += "\nended by signal " + std::to_string(WTERMSIG(status));
  return text;
}

}  // namespace gpupool::test
