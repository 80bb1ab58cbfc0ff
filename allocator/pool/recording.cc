// A pool's own trace: what it is asked for, in one order, from the moment that Pool::record() is
// called.
//
// Note [What is recorded]
// While a recording goes on every cache is barred (cache/claim.h), so that each request and each
// free goes the way that takes the pool's lock, where it is noted: a hit is served by the same
// cache and counts as the same hit, and the path of a hit (hit.cc) has nothing to ask. The lock
// gives the order: a free is noted before the block can be had again, an allocation after it was
// taken, and both before anybody else is served.
//
// The bar is up before the recording begins, and it begins only once every thread has been seen
// outside its cache. So no free is under way that is not noted. An allocation may be: its thread
// has the block and has not made it live yet. That block is not in the trace, nor is its free.
#include <chrono>
#include <thread>
#include <utility>

#include "pool/pool_impl.h"

namespace gpupool {

using internal::MutexLock;
using internal::RecordEvent;

Result<void, Status> Pool::Impl::start_recording(const std::string& path,
                                                 const RecordOptions& options) {
  constexpr std::chrono::microseconds kPause{50};
  MutexLock turn(record_mu_);
  std::vector<RecordEvent> live;
  {
    MutexLock lock(mu_);
    if (recorder_ != nullptr) {
      return Status{Error::invalid_argument,
                    path + ": the pool already records to " + recorder_->path()};
    }
  }
  auto opened = internal::Recorder::open(
      path, options, {options_.name, device().name, limit_bytes_.get()}, clock_);
  if (!opened.ok()) return opened.error();
  {
    MutexLock lock(mu_);
    caches_.bar_all();
  }
  for (;;) {
    {
      MutexLock lock(mu_);
      if (caches_.are_all_outside()) {
        opened.value()->begin(live_events());
        recorder_ = std::move(opened).value();
        return {};
      }
    }
    // Long enough for the scheduler to let whoever was stopped inside go on.
    std::this_thread::sleep_for(kPause);
  }
}

Result<RecordReport, Status> Pool::Impl::stop_recording() {
  MutexLock turn(record_mu_);
  std::unique_ptr<internal::Recorder> recorder;
  {
    MutexLock lock(mu_);
    if (recorder_ == nullptr) {
      return Status{Error::invalid_argument, "stop_recording: the pool does not record"};
    }
    recorder = std::move(recorder_);
    recorder->end();
    caches_.unbar_all();
  }
  return recorder->finish();
}

std::vector<RecordEvent> Pool::Impl::live_events() {
  std::vector<RecordEvent> events;
  events.reserve(caches_.totals().live_blocks());
  visit_all([&](const BlockInfo& info) GPUPOOL_REQUIRES(mu_) {
    if (info.state != BlockState::live) return;
    const auto* const pointer = reinterpret_cast<const void*>(info.address);
    const internal::BlockWord word = record_of(find_target(pointer)).load();
    events.push_back({info.address, info.requested_bytes, 0, trace_stream(word.stream())});
  });
  return events;
}

std::uint32_t Pool::Impl::trace_stream(StreamIndex stream) const {
  // 0 is the default stream to all readers. Indices are dense, and used again as streams end.
  return streams_.is_default(stream) ? 0 : stream + 1;
}

}  // namespace gpupool
