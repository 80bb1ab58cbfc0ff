// Scenarios in a process of their own.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "tests/support/generator.h"

namespace gpupool::test {
namespace {

constexpr unsigned kSecondsPerTrial = 60;
constexpr int kFailed = 1;

/// Seen by this process and its children.
class SharedProgress {
 public:
  SharedProgress() {
    void* const page =
        mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) progress_ = new (page) Progress;
  }
  ~SharedProgress() {
    if (progress_ != nullptr) munmap(progress_, sizeof(Progress));
  }
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  Progress* get() const { return progress_; }

 private:
  Progress* progress_ = nullptr;
};

[[noreturn]] void run_child(const ChildProgram& run, Progress& progress, int report) {
  dup2(report, STDERR_FILENO);
  const std::string text = run(progress).value_or("");
  (void)!write(report, text.data(), text.size());
  _exit(text.empty() ? 0 : kFailed);
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

std::optional<std::string> run_in_child(const ChildProgram& run, Progress& progress) {
  const SharedProgress shared;
  int ends[2];
  if (shared.get() == nullptr || pipe(ends) != 0) {
    return std::string("no pipe or page: ") + std::strerror(errno);
  }
  const pid_t child = fork();
  if (child < 0) return std::string("no child process: ") + std::strerror(errno);
  if (child == 0) {
    close(ends[0]);
    run_child(run, *shared.get(), ends[1]);
  }
  close(ends[1]);
  std::string text = read_all(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  progress = *shared.get();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (WIFSIGNALED(status)) text += "\nended by signal " + std::to_string(WTERMSIG(status));
  return text;
}

Trial run_scenario(const Scenario& scenario) {
  alarm(kSecondsPerTrial);  // a trial that hangs is one that fails
  auto* const world = new World(scenario.world);
  Trial trial{world->run(scenario.list), world->faulty.failed_count() > 0};
  // One that failed may be in any state, and is left as it is.
  if (!trial.failure) delete world;
  alarm(0);
  return trial;
}

Trial try_scenario(const Scenario& scenario) {
  Progress progress;
  auto failure = run_in_child([&](Progress&) { return run_scenario(scenario).failure; }, progress);
  return {std::move(failure), false};
}

std::optional<std::string> try_seeds(std::uint64_t first, std::uint64_t count,
                                     const std::function<Scenario(std::uint64_t)>& make) {
  const auto run = [&](Progress& progress) -> std::optional<std::string> {
    for (progress.seed = first; progress.seed < first + count; ++progress.seed) {
      if (auto failure = run_scenario(make(progress.seed)).failure) return failure;
    }
    return std::nullopt;
  };
  Progress progress;
  const auto failure = run_in_child(run, progress);
  if (!failure) return std::nullopt;
  return *failure + "\n" + explain_failure(progress.seed, make(progress.seed));
}

}  // namespace gpupool::test
