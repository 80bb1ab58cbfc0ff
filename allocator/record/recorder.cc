#include "record/recorder.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "base/invalid.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kMinBytes = 4096;
/// Short against what the buffer holds of a busy program, long against waking up.
constexpr std::chrono::milliseconds kPause{5};

}  // namespace

Result<std::unique_ptr<Recorder>, Status> Recorder::open(const std::string& path,
                                                         const RecordOptions& options,
                                                         const RecordSource& source,
                                                         const Clock& clock) {
  // Before the file is touched.
  if (options.max_file_bytes < kMinBytes) return invalid(path + ": max_file_bytes: at least 4KiB");
  if (options.buffer_bytes < kMinBytes) return invalid(path + ": buffer_bytes: at least 4KiB");
  std::unique_ptr<Recorder> recorder(new Recorder(path, clock));
  if (!recorder->ring_.reserve(options.buffer_bytes)) {
    return Status{Error::out_of_memory, path + ": no host memory for buffer_bytes, " +
                                            std::to_string(options.buffer_bytes)};
  }
  auto created = recorder->writer_.create(path, options.max_file_bytes, source);
  if (!created.ok()) return created.error();
  if (!recorder->start_thread()) {
    return Status{Error::out_of_memory, path + ": the host has no thread to write it"};
  }
  return recorder;
}

Recorder::Recorder(std::string path, const Clock& clock) : path_(std::move(path)), clock_(clock) {}

Recorder::~Recorder() { stop_thread(); }

void Recorder::begin(std::vector<RecordEvent> live) {
  const std::lock_guard lock(mutex_);
  live_ = std::move(live);
  start_ns_ = clock_.now_ns();
  has_begun_ = true;
  changed_.notify_one();
}

void Recorder::note(RecordEvent event) {
  if (was_ring_full_ || writer_.is_full()) {
    ++missed_;
    return;
  }
  event.time_ns = clock_.now_ns();
  if (ring_.push(event)) return;
  was_ring_full_ = true;
  ++missed_;
}

Result<RecordReport, Status> Recorder::finish() {
  stop_thread();
  auto report = writer_.finish(end_ns_, missed_);
  if (report.ok()) {
    if (was_ring_full_) report.value().end = RecordEnd::buffer_full;
    if (writer_.is_full()) report.value().end = RecordEnd::file_full;
  }
  return report;
}

bool Recorder::start_thread() {
  // The program's signals are for its own threads. A file that would be larger than the process may
  // write is an error here then, too, and not the end of the program.
  ::sigset_t all;
  ::sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  bool is_started = true;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    is_started = false;  // the caller says so
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (is_started) ::pthread_setname_np(thread_.native_handle(), "gpupool-record");
  return is_started;
}

void Recorder::stop_thread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Recorder::run() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_begun_ || is_over_; });
  if (!has_begun_) return;
  {
    const std::vector<RecordEvent> live = std::exchange(live_, {});
    lock.unlock();
    writer_.begin(live, start_ns_);
  }
  for (;;) {
    lock.lock();
    // What was noted before the end is in the ring once the end is known.
    const bool is_last = is_over_ || changed_.wait_for(lock, kPause, [this] { return is_over_; });
    lock.unlock();
    RecordEvent event;
    while (ring_.pop(event)) writer_.write(event);
    writer_.flush();
    if (is_last) return;
  }
}

}  // namespace gpupool::internal
